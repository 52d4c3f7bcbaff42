import type { Queryable } from '../database/index.ts';
import { selectList, sourceColumns, typeColumns, type StoredSource, type TypeRow } from './columns.ts';
import type { RegistryRows } from './diff.ts';

/** The rows of the registry; none if pgfresh is not installed yet. */
export async function readRegistry(database: Queryable): Promise<RegistryRows> {
  const [table] = await database.query<{ there: boolean }>(
    `select to_regclass('pgfresh.data_type_registry') is not null as there`,
  );
  if (!table?.there) return { sources: [], types: [] };
  const [sources, types] = [
    await columnsThere(database, 'pgfresh.sources', { ...sourceColumns, config: 'text', overrides: 'text' }),
    await columnsThere(database, 'pgfresh.data_type_registry', typeColumns),
  ];
  const rows = await database.query<StoredSource>(`select ${selectList(sources)} from pgfresh.sources order by name`);
  return {
    sources: rows.map((row) => ({ ...row, config: row.config ?? {}, overrides: row.overrides ?? {} })),
    types: await database.query<TypeRow>(
      `select ${selectList(types)} from pgfresh.data_type_registry order by data_type`,
    ),
  };
}

/** The existing columns, without those that a pending migration adds. */
async function columnsThere<C extends Parameters<typeof selectList>[0]>(
  database: Queryable,
  table: string,
  columns: C,
): Promise<C> {
  const there = await database.query<{ name: string }>(
    'select attname as name from pg_attribute where attrelid = $1::regclass and attnum > 0 and not attisdropped',
    [table],
  );
  const names = new Set(there.map(({ name }) => name));
  return Object.fromEntries(Object.entries(columns).filter(([name]) => names.has(name))) as C;
}

/** Why a data type cannot be planned now, and how to fix it. */
export interface TypeProblem {
  readonly type: string;
  readonly problem: string;
  readonly next: string;
}

/** Data types whose tables or functions have changed since they were registered. */
export async function readProblems(database: Queryable): Promise<TypeProblem[]> {
  return database.query<TypeProblem>(
    'select data_type as type, problem, next_step as next from pgfresh_engine.type_problems()',
  );
}

/** Data types in quarantine: their table or a function does not respond in time. */
export async function readQuarantines(database: Queryable): Promise<TypeProblem[]> {
  return database.query<TypeProblem>(
    'select data_type as type, problem, next_step as next from pgfresh_engine.quarantined_types()',
  );
}
