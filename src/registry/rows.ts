import type { Queryable } from '../database/index.ts';
import { selectList, sourceColumns, typeColumns, type SourceRow, type TypeRow } from './columns.ts';
import type { RegistryRows } from './diff.ts';

/** What the registry holds; nothing where pgfresh was not installed yet. */
export async function readRegistry(database: Queryable): Promise<RegistryRows> {
  const [table] = await database.query<{ there: boolean }>(
    `select to_regclass('pgfresh.data_type_registry') is not null as there`,
  );
  if (!table?.there) return { sources: [], types: [] };
  return {
    sources: await database.query<SourceRow>(`select ${selectList(sourceColumns)} from pgfresh.sources order by name`),
    types: await database.query<TypeRow>(
      `select ${selectList(typeColumns)} from pgfresh.data_type_registry order by data_type`,
    ),
  };
}

/** Why a data type can not be planned now, and what to do about it. */
export interface TypeProblem {
  readonly type: string;
  readonly problem: string;
  readonly next: string;
}

/** The data types that do not mean any more what they meant when they were registered. */
export async function readProblems(database: Queryable): Promise<TypeProblem[]> {
  return database.query<TypeProblem>(
    'select data_type as type, problem, next_step as next from pgfresh.type_problems()',
  );
}
