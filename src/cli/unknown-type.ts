import { nearMiss } from '../config/index.ts';
import { PgfreshError } from '../errors/index.ts';

/** The error of a data type that is none of the known ones. */
export function unknownType(name: string, known: readonly string[]): PgfreshError {
  const near = nearMiss(name, known);
  const hint = near ? `; did you mean "${near}"?` : known.length === 0 ? '; there are none yet' : '';
  return new PgfreshError('PGF_TYPE_UNKNOWN', { problem: `There is no data type "${name}"${hint}` });
}
