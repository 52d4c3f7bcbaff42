import type { Definitions } from '../config/index.ts';
import type { Queryable } from '../database/index.ts';
import { isEmpty, namesOf } from './diff.ts';
import type { RegistryFinding } from './finding.ts';
import { rowFindings } from './row-contract.ts';
import { readProblems, readQuarantines, readRegistry } from './rows.ts';
import { previewSync } from './sync.ts';
import { mirroredColumns } from './table-columns.ts';
import { ttlFindings } from './ttl-check.ts';

/** Mistakes in data types that raise no error: names, limits, and schemas that do not match their tables. */
export async function examineRegistry(
  database: Queryable,
  config: Definitions & { readonly file?: string | undefined },
): Promise<RegistryFinding[]> {
  const { types } = await readRegistry(database);
  const problems = (await readProblems(database)).map(({ type, problem, next }) => ({
    name: `data type ${type}`,
    state: 'fatal' as const,
    detail: problem,
    code: 'PGF_REGISTRY_INVALID',
    next,
  }));
  const quarantines = (await readQuarantines(database)).map(({ type, problem, next }) => ({
    name: `data type ${type}`,
    state: 'warning' as const,
    detail: problem,
    next,
  }));
  const schemas = (config.dataTypes ?? []).filter(({ row }) => row !== undefined);
  const columns = await mirroredColumns(
    database,
    schemas.map(({ table }) => table),
  );
  const findings = [
    ...problems,
    ...quarantines,
    ...(await ttlFindings(database)),
    ...(await differences(database, config)),
    ...schemas.flatMap((type) => rowFindings(type, columns.get(type.table) ?? [])),
  ];
  return [summary(types.length, problems.length), ...findings];
}

function summary(count: number, broken: number): RegistryFinding {
  const types = count === 0 ? 'no data types yet' : `${count} data type${count === 1 ? '' : 's'}`;
  const state = count === 0 ? '' : broken === 0 ? ', all of them resolve' : `, ${broken} of them not planned`;
  return { name: 'registry', state: 'ok', detail: `${types}${state}` };
}

async function differences(database: Queryable, config: Parameters<typeof previewSync>[1]): Promise<RegistryFinding[]> {
  const diff = await previewSync(database, config);
  if (isEmpty(diff)) return [];
  const detail = `the database differs from the configuration: ${namesOf(diff)}`;
  return [{ name: 'registry', state: 'warning', detail, next: 'Run "pgfresh migrate".' }];
}
