import { durationText } from '../config/index.ts';
import type { Queryable } from '../database/index.ts';
import { typeColumns, type TypeRow, type Value } from './columns.ts';
import { readProblems, readQuarantines, readRegistry, type TypeProblem } from './rows.ts';

/** A row of the registry with human-readable durations, and its problem, if any. */
export type ListedType = TypeRow & { readonly problem: Omit<TypeProblem, 'type'> | null };

/** All registered data types. */
export async function listTypes(database: Queryable): Promise<ListedType[]> {
  const { types } = await readRegistry(database);
  if (types.length === 0) return [];
  const found = [...(await readQuarantines(database)), ...(await readProblems(database))];
  const problems = new Map(found.map(({ type, ...rest }) => [type, rest]));
  return types.map((row) => ({ ...withTexts(row), problem: problems.get(row.data_type) ?? null }));
}

function withTexts(row: TypeRow): TypeRow {
  const entries = Object.entries(typeColumns).map(([column, kind]): [string, Value] => {
    const value = (row as Readonly<Record<string, Value>>)[column]!;
    return [column, kind === 'interval' && typeof value === 'number' ? durationText(value) : value];
  });
  return Object.fromEntries(entries) as TypeRow;
}
