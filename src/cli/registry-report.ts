import { timeText } from '../config/index.ts';
import type { ColumnChange, Overridden, RegistryDiff, TypeProblem } from '../registry/index.ts';
import type { JobDiff } from '../schedule/index.ts';

interface Changes {
  readonly name: string;
  readonly changes: readonly ColumnChange[];
}

/** The changes of a sync, for the text and the JSON output. */
interface RegistryReport {
  readonly sources: {
    readonly added: readonly string[];
    readonly changed: readonly Changes[];
    readonly overridden: readonly Overridden[];
  };
  readonly types: {
    readonly added: readonly string[];
    readonly changed: readonly Changes[];
    readonly removed: readonly string[];
  };
  /** Types whose tables or functions changed since they were registered; a sync does not touch them. */
  readonly drifted: readonly TypeProblem[];
}

export function registryReport({ sources, types }: RegistryDiff, problems: readonly TypeProblem[]): RegistryReport {
  const changesOf = ({ name, changes }: Changes): Changes => ({ name, changes });
  // Changed types are resolved again, and removed ones are gone.
  const settled = new Set([...types.changed.map(({ name }) => name), ...types.removed]);
  return {
    sources: {
      added: sources.added.map(({ name }) => name),
      changed: sources.changed.map(changesOf),
      overridden: sources.overridden,
    },
    types: {
      added: types.added.map(({ name }) => name),
      changed: types.changed.map(changesOf),
      removed: types.removed,
    },
    drifted: problems.filter(({ type }) => !settled.has(type)),
  };
}

export function registryLines({ sources, types, drifted }: RegistryReport): string[] {
  return [
    ...sources.added.map((name) => `+ source ${name}`),
    ...sources.changed.flatMap((change) => changeLines('source', change)),
    ...sources.overridden.map(overrideLine),
    ...types.added.map((name) => `+ data type ${name}`),
    ...types.changed.flatMap((change) => changeLines('data type', change)),
    ...types.removed.map((name) => `- data type ${name}`),
    ...drifted.map(({ type, problem, next }) => `! data type ${type}: ${problem}\n  Next: ${next}`),
  ];
}

interface JobReport {
  readonly added: readonly string[];
  readonly changed: readonly Changes[];
  readonly disabled: readonly string[];
}

export function jobReport({ added, changed, disabled }: JobDiff): JobReport {
  return {
    added: added.map(({ name }) => name),
    changed: changed.map(({ name, changes }) => ({ name, changes })),
    disabled,
  };
}

export function jobLines({ added, changed, disabled }: JobReport): string[] {
  return [
    ...added.map((name) => `+ job ${name}`),
    ...changed.flatMap((change) => changeLines('job', change)),
    ...disabled.map((name) => `- job ${name}, which is disabled; its history stays`),
  ];
}

function overrideLine({ name, column, value, configured, by, at, reason }: Overridden): string {
  const why = reason === null ? '' : `: ${reason}`;
  return `! source ${name}: ${column} is ${value}, set by ${by} at ${timeText(at)}${why}; the configuration says ${configured}\n  Next: Run "pgfresh source clear ${name}" to follow the configuration.`;
}

function changeLines(what: string, { name, changes }: Changes): string[] {
  return [`~ ${what} ${name}`, ...changes.map(({ column, from, to }) => `    ${column}: ${from} → ${to}`)];
}
