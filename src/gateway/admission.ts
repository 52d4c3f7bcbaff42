import type { Queryable } from '../database/index.ts';
import type { Pair } from './pair.ts';

/** What somebody asks for. */
export interface WantedPair {
  readonly dataType: string;
  readonly key: string;
}

export interface Admitted extends Pair {
  readonly visibility: 'shared' | 'rls';
}

/** Why a pair can not be had. */
export interface Refused {
  readonly code: string;
  readonly problem: string;
}

const admit = {
  name: 'pgfresh.admit_pairs',
  text: `select type_id as type, visibility, key, code, problem from pgfresh.admit_pairs($1::text[], $2::text[]) order by place`,
};

/** Of each wanted pair, in their order, how the registry spells it, or why it can not be had. At most 10,000 at a time. */
export async function admitPairs(
  db: Queryable,
  wanted: readonly WantedPair[],
): Promise<({ readonly admitted: Admitted } | { readonly refused: Refused })[]> {
  const rows = await db.query<Admitted & { code: string | null; problem: string }>(admit, [
    wanted.map(({ dataType }) => dataType),
    wanted.map(({ key }) => key),
  ]);
  return rows.map(({ type, visibility, key, code, problem }) =>
    code === null ? { admitted: { type, visibility, key } } : { refused: { code, problem } },
  );
}
