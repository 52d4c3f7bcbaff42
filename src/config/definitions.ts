import { secretOptions } from './client-options.ts';
import { dataTypeSchema, type DataType, type DataTypeDefinition } from './data-type.ts';
import { readDefinition } from './definition.ts';
import { invalid, shown } from './invalid.ts';
import { jobSchema, type Job, type JobDefinition } from './job.ts';
import { sourceSchema, type Source, type SourceDefinition } from './source.ts';

/** What a configuration defines besides its settings. */
export interface ConfigDefinitions {
  readonly sources?: readonly SourceDefinition[] | undefined;
  readonly dataTypes?: readonly DataTypeDefinition[] | undefined;
  readonly jobs?: readonly JobDefinition[] | undefined;
}

export const definitionNames = ['sources', 'dataTypes', 'jobs'] as const;

/** The definitions as the program uses them. */
export interface Definitions {
  readonly sources: readonly Source[];
  /** Undefined if the configuration says nothing about data types, which is not the same as that there are none. */
  readonly dataTypes: readonly DataType[] | undefined;
  /** Undefined in the same sense. */
  readonly jobs?: readonly Job[] | undefined;
}

/** Checks each definition by itself, then all of them together. */
export function readDefinitions(config: ConfigDefinitions, file: string): Definitions {
  requireList(config.sources, 'sources', file);
  requireList(config.dataTypes, 'dataTypes', file);
  requireList(config.jobs, 'jobs', file);
  const { sources: given = [], dataTypes: types } = config;
  const readSource = (value: unknown, path: string): Source =>
    readDefinition(sourceSchema, value, { file, path, secret: secretOptions });
  const sources = given.map((value, index) => readSource(value, `sources[${index}]`));
  const dataTypes = types?.map((value, index) =>
    readDefinition(dataTypeSchema, value, { file, path: `dataTypes[${index}]` }),
  );
  // A source that is handed to a data type need not be listed as well.
  const known = new Set<unknown>(given);
  for (const [index, { source }] of (types ?? []).entries()) {
    if (typeof source === 'string' || known.has(source)) continue;
    known.add(source);
    sources.push(readSource(source, `dataTypes[${index}].source`));
  }
  refuseTwins(sources, 'sources', file);
  refuseTwins(dataTypes ?? [], 'dataTypes', file);
  refuseCircles(dataTypes ?? [], file);
  const jobs = config.jobs?.map((value, index) => readDefinition(jobSchema, value, { file, path: `jobs[${index}]` }));
  refuseTwins(jobs ?? [], 'jobs', file);
  return { sources, dataTypes, jobs };
}

function requireList(value: unknown, path: string, file: string): void {
  if (value === undefined || Array.isArray(value)) return;
  throw invalid(file, path, `expected a list, got ${shown(value)}`);
}

function refuseTwins(definitions: readonly { name: string }[], path: string, file: string): void {
  const places = new Map<string, number>();
  for (const [index, { name }] of definitions.entries()) {
    const first = places.get(name);
    if (first !== undefined) {
      throw invalid(
        file,
        `${path}[${index}].name`,
        `expected each name once, and "${name}" is that of ${path}[${first}] too`,
      );
    }
    places.set(name, index);
  }
}

function refuseCircles(types: readonly DataType[], file: string): void {
  const needs = new Map(types.map(({ name, dependsOn }) => [name, dependsOn]));
  const cleared = new Set<string>();
  const walk = (name: string, way: readonly string[]): void => {
    const since = way.indexOf(name);
    if (since >= 0) {
      const circle = [...way.slice(since), name].join(' → ');
      throw invalid(file, `dataTypes ("${name}").dependsOn`, `expected no data type to need itself, got ${circle}`);
    }
    if (cleared.has(name)) return;
    for (const needed of needs.get(name) ?? []) walk(needed, [...way, name]);
    cleared.add(name);
  };
  for (const name of needs.keys()) walk(name, []);
}
