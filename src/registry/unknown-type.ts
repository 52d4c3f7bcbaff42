import { nearMiss } from '../config/index.ts';
import type { Queryable } from '../database/index.ts';
import { asPgfreshError, PgfreshError } from '../errors/index.ts';
import { listTypes } from './list.ts';

/** The error for an unknown data type. */
export function unknownType(name: string, known: readonly string[]): PgfreshError {
  const near = nearMiss(name, known);
  const hint = near ? `; did you mean "${near}"?` : known.length === 0 ? '; there are none yet' : '';
  const next = 'See the known ones with "pgfresh type list".';
  return new PgfreshError('PGF_TYPE_UNKNOWN', { problem: `There is no data type "${name}"${hint}` }, { next });
}

/** Runs `work`; if the data type is unknown, the error suggests the closest name. */
export async function namingUnknownType<T>(database: Queryable, name: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (asPgfreshError(error).code !== 'PGF_TYPE_UNKNOWN') throw error;
    throw unknownType(name, await typeNames(database));
  }
}

/** A worker limited to a mistyped name would run and do nothing. */
export async function requireTypes(database: Queryable, names: readonly string[]): Promise<void> {
  const known = await typeNames(database);
  for (const name of names) if (!known.includes(name)) throw unknownType(name, known);
}

/** The names of all registered data types. */
async function typeNames(database: Queryable): Promise<string[]> {
  return (await listTypes(database)).map(({ data_type }) => data_type);
}
