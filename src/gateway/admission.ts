import type { Queryable } from '../database/index.ts';
import type { ErrorCode } from '../errors/index.ts';
import type { Pair } from './pair.ts';

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

const admit = {
  name: 'pgfresh.admit_pairs',
  text: `select type_id as type, visibility, key, known, code, problem
    from pgfresh_engine.admit_pairs($1::text[], $2::text[]) order by place`,
};

/** Of each wanted pair, in their order, how the registry spells it, or why it cannot be had. At most 10,000 at a time. */
export async function admitPairs(db: Queryable, wanted: readonly WantedPair[]): Promise<Verdict[]> {
  const rows = await db.query<Admitted & { code: ErrorCode | null; problem: string }>(admit, [
    wanted.map(({ dataType }) => dataType),
    wanted.map(({ key }) => key),
  ]);
  return rows.map(({ type, visibility, key, known, code, problem }) =>
    code === null ? { admitted: { type, visibility, key, known } } : { refused: { code, problem } },
  );
}
