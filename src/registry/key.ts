import type { Queryable } from '../database/index.ts';
import { PgfreshError } from '../errors/index.ts';

interface KeyLookup {
  readonly key: string | null;
  readonly code: 'PGF_KEY_INVALID' | 'PGF_KEY_UNKNOWN' | 'PGF_TYPE_UNKNOWN' | 'PGF_REGISTRY_INVALID' | null;
  readonly problem: string | null;
  readonly pattern: string | null;
  readonly table: string | null;
}

/**
 * A key, or part of one, in the case of its data type. Only A to Z change, as in pgfresh_engine.canonical_key: the case
 * of other letters differs between PostgreSQL versions, collations and JavaScript.
 */
export function canonicalKey(text: string, normalise: 'none' | 'upper' | 'lower'): string {
  if (normalise === 'none') return text;
  return normalise === 'upper'
    ? text.replaceAll(/[a-z]+/g, (letters) => letters.toUpperCase())
    : text.replaceAll(/[A-Z]+/g, (letters) => letters.toLowerCase());
}

/** The canonical form of a key; throws if the data type does not accept it. */
export async function admitKey(database: Queryable, dataType: string, key: string): Promise<string> {
  const [lookup] = await database.query<KeyLookup>(
    `select a.key, a.code, a.problem, r.key_pattern as pattern, r.key_table as "table"
    from pgfresh_engine.want_pairs(array[$1::text], array[$2::text]) as a
    left join pgfresh.data_type_registry as r on r.data_type = $1::text`,
    [dataType, key],
  );
  const { key: spelled, code, problem, pattern, table } = lookup!;
  if (code === null) return spelled!;
  const keys = pattern === null ? table && `those of ${table}` : `those that match ${pattern}`;
  throw new PgfreshError(code, {
    problem: code === 'PGF_KEY_UNKNOWN' && keys ? `${problem}; its keys are ${keys}` : problem!,
  });
}
