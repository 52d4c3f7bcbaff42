import type { Queryable } from '../database/index.ts';
import { Refusal } from './outcomes.ts';
import type { RefreshType } from './refresh-type.ts';

/** What an answer takes away: so many rows of those that its key had, without others in their place. */
export interface Loss {
  readonly had: number;
  readonly lost: number;
}

/** What the data type has lost already, and how many rows it had before that. */
export interface TypeLosses {
  readonly lostBefore: number;
  readonly rowsBefore: number;
}

/** An answer that takes too much away: of its own key, or together with others of the data type. */
export class LossRefusal extends Refusal {
  readonly of: 'key' | 'type';

  constructor(of: 'key' | 'type', message: string) {
    super('suspicious', message);
    this.of = of;
  }
}

/** Thrown inside the commit, so that nothing of it is written. */
export class TooManyLosses extends Error {
  override readonly name = 'TooManyLosses';
  readonly refusals: ReadonlyMap<number, LossRefusal>;

  constructor(refusals: ReadonlyMap<number, LossRefusal>) {
    super('answers would take away more rows than may go at once');
    this.refusals = refusals;
  }
}

// Of few rows every share is large.
const alwaysAllowed = 10;

/** How many of so many rows may go. */
function allowed(rows: number, share: number): number {
  return share === 0 ? 0 : Math.max(alwaysAllowed, Math.floor(rows * share));
}

/** The answers whose own key would lose too much. */
export function keySuspects(losses: ReadonlyMap<number, Loss>, share: number): Map<number, LossRefusal> {
  const suspects = [...losses].filter(([, { had, lost }]) => lost > allowed(had, share));
  return new Map(
    suspects.map(([job, { had, lost }]) => [
      job,
      new LossRefusal('key', `${lost} of the ${had} rows of its key would go; ${limit(share)}`),
    ]),
  );
}

/** Those of them that go beyond what the data type may lose, in their order. */
export function typeSuspects(
  losses: ReadonlyMap<number, Loss>,
  { lostBefore, rowsBefore }: TypeLosses,
  share: number,
): Map<number, LossRefusal> {
  const most = allowed(rowsBefore, share);
  let lost = lostBefore;
  const suspects = [...losses].flatMap(([job, loss]) => {
    if (lost + loss.lost > most) return [job];
    lost += loss.lost;
    return [];
  });
  // One sentence for all of them: what has the same is turned back together.
  const message = `${lost} of the ${rowsBefore} rows of the data type have gone lately, and more would; ${limit(share)}`;
  return new Map(suspects.map((job) => [job, new LossRefusal('type', message)]));
}

function limit(share: number): string {
  return `at most ${Math.round(share * 1000) / 10} % may go at once`;
}

/** Throws TooManyLosses if answers of this transaction, which has written them already, take away too much. */
export async function requireFewLosses(
  tx: Queryable,
  type: RefreshType,
  verdicts: ReadonlyMap<number, Loss>,
): Promise<void> {
  const { maxDeletes: share } = type;
  const losses = new Map([...verdicts].filter(([, { lost }]) => lost > 0));
  if (losses.size === 0 || share === 1) return;
  const ofKeys = keySuspects(losses, share);
  const others = new Map([...losses].filter(([job]) => !ofKeys.has(job)));
  const ofType = others.size > 0 ? await suspectsOfType(tx, type, others, sum(losses)) : [];
  const refusals = new Map([...ofKeys, ...ofType]);
  if (refusals.size > 0) throw new TooManyLosses(refusals);
}

async function suspectsOfType(
  tx: Queryable,
  { id, table, maxDeletes: share }: RefreshType,
  losses: ReadonlyMap<number, Loss>,
  gone: number,
): Promise<Map<number, LossRefusal>> {
  const lost = sum(losses);
  // Whoever takes rows away too waits here, so that together they do not take more.
  const [row] = await tx.query<{ before: number }>(
    'select pgfresh_engine.count_losses($1::int, $2::bigint) as before',
    [id, lost],
  );
  const lostBefore = row!.before;
  const all = lostBefore + lost;
  if (share > 0 && all <= alwaysAllowed) return new Map();
  // No more rows are counted than it takes to know that it is enough.
  const enough = share === 0 ? 0 : Math.ceil(all / share) + 1;
  const [left] = await tx.query<{ count: number }>(
    `select count(*)::int as count from (select from ${table.name} limit $1::bigint) as counted`,
    [enough],
  );
  return typeSuspects(losses, { lostBefore, rowsBefore: lostBefore + gone + left!.count }, share);
}

function sum(losses: ReadonlyMap<number, Loss>): number {
  return [...losses.values()].reduce((total, { lost }) => total + lost, 0);
}

/** Says that answers were refused because they take too much away. With the end of their jobs, in one transaction. */
export async function noteSuspicion(
  tx: Queryable,
  type: RefreshType,
  bad: readonly { readonly refusal: Refusal }[],
): Promise<void> {
  const refusals = bad.flatMap(({ refusal }) => (refusal instanceof LossRefusal ? [refusal] : []));
  if (refusals.length === 0) return;
  await tx.query('select pgfresh_engine.note_suspicion($1::int, $2::text, $3::int, $4::boolean)', [
    type.id,
    refusals[0]!.message,
    refusals.length,
    refusals.some((refusal) => refusal.of === 'type'),
  ]);
}
