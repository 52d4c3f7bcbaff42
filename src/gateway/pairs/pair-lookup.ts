import type { Queryable } from '../../database/index.ts';
import type { ErrorCode } from '../../errors/index.ts';
import type { Pair } from '../../changes/index.ts';

/** What somebody asks for. */
export interface WantedPair {
  readonly dataType: string;
  readonly key: string;
}

export interface Admitted extends Pair {
  readonly visibility: 'shared' | 'rls';
  /** Whether anybody ever asked for it. */
  readonly known: boolean;
}

/** Why a pair cannot be had. */
export interface Refused {
  readonly code: ErrorCode;
  readonly problem: string;
}

export type Verdict = { readonly admitted: Admitted } | { readonly refused: Refused };

interface Row extends Admitted {
  readonly counted: boolean;
  readonly code: ErrorCode | null;
  readonly problem: string;
}

const columns = 'type_id as type, visibility, key, known, counted, code, problem';
const admit = {
  name: 'pgfresh.admit_pairs',
  text: `select ${columns} from pgfresh_engine.want_pairs($1::text[], $2::text[]) order by place`,
};
const want = {
  name: 'pgfresh.want_pairs',
  text: `select ${columns} from pgfresh_engine.want_pairs($1::text[], $2::text[], true, $3::bigint) order by place`,
};

/**
 * Of each wanted pair, in their order, how the registry spells it, or why it cannot be had. At most 10,000 at a time.
 * Writes nothing.
 */
export async function admitPairs(db: Queryable, wanted: readonly WantedPair[]): Promise<Verdict[]> {
  return (await db.query<Row>(admit, names(wanted))).map(verdictOf);
}

/** The same, and queues those that are missing or stale. Counts one viewer of each that a node had none of. */
export async function wantPairs(
  db: Queryable,
  wanted: readonly WantedPair[],
  node: number | undefined,
): Promise<{ readonly verdicts: readonly Verdict[]; readonly counted: readonly Pair[] }> {
  const rows = await db.query<Row>(want, [...names(wanted), node]);
  return {
    verdicts: rows.map(verdictOf),
    counted: rows.flatMap(({ type, key, counted }) => (counted ? [{ type, key }] : [])),
  };
}

function verdictOf({ type, visibility, key, known, code, problem }: Row): Verdict {
  return code === null ? { admitted: { type, visibility, key, known } } : { refused: { code, problem } };
}

function names(wanted: readonly WantedPair[]): [string[], string[]] {
  return [wanted.map(({ dataType }) => dataType), wanted.map(({ key }) => key)];
}
