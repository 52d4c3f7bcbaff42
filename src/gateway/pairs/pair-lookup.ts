import type { PairId } from '../../changes/index.ts';
import type { GatewayPair } from '../../config/index.ts';
import type { Queryable } from '../../database/index.ts';
import { PgfreshError, type ErrorCode } from '../../errors/index.ts';

export type Visibility = 'shared' | 'rls';

/** A pair that can exist, as the registry spells it. */
export interface RegisteredPair extends PairId {
  readonly visibility: Visibility;
  /** Whether it was ever requested before. */
  readonly known: boolean;
}

/** Why a pair cannot exist. */
export interface PairRefusal {
  readonly code: ErrorCode;
  readonly problem: string;
}

export type PairLookup = { readonly found: RegisteredPair } | { readonly refused: PairRefusal };

interface Row extends RegisteredPair {
  readonly counted: boolean;
  readonly code: ErrorCode | null;
  readonly problem: string;
}

const columns = 'type_id as type, visibility, key, known, counted, code, problem';
const lookUp = {
  name: 'pgfresh.admit_pairs',
  text: `select ${columns} from pgfresh_engine.want_pairs($1::text[], $2::text[]) order by place`,
};
const plan = {
  name: 'pgfresh.want_pairs',
  text: `select ${columns} from pgfresh_engine.want_pairs($1::text[], $2::text[], true, $3::bigint) order by place`,
};

/** Looks up each pair in the registry, in order. Takes at most 10,000 pairs, and writes nothing. */
export async function lookUpPairs(db: Queryable, pairs: readonly GatewayPair[]): Promise<PairLookup[]> {
  return (await db.query<Row>(lookUp, pairColumns(pairs))).map(lookupOf);
}

/** Also queues the pairs that are missing or stale, and counts one viewer for each pair that had none on this node. */
export async function lookUpAndPlanPairs(
  db: Queryable,
  pairs: readonly GatewayPair[],
  node: number | undefined,
): Promise<{ readonly lookups: readonly PairLookup[]; readonly counted: readonly PairId[] }> {
  const rows = await db.query<Row>(plan, [...pairColumns(pairs), node]);
  return {
    lookups: rows.map(lookupOf),
    counted: rows.flatMap(({ type, key, counted }) => (counted ? [{ type, key }] : [])),
  };
}

/** The error of a refused pair. */
export function lookupError(lookup: PairLookup): PgfreshError | undefined {
  if ('found' in lookup) return undefined;
  const { code, problem } = lookup.refused;
  return new PgfreshError(code as 'PGF_KEY_UNKNOWN', { problem });
}

/** Pairs as two arrays, for unnest. */
export function pairColumns(pairs: readonly GatewayPair[]): [string[], string[]] {
  return [pairs.map(({ dataType }) => dataType), pairs.map(({ key }) => key)];
}

function lookupOf({ type, visibility, key, known, code, problem }: Row): PairLookup {
  return code === null ? { found: { type, visibility, key, known } } : { refused: { code, problem } };
}
