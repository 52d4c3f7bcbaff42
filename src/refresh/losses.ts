import type { Queryable } from '../database/index.ts';
import { Refusal } from './outcomes.ts';
import type { RefreshType } from './refresh-type.ts';

/** How many rows of its key an answer deletes without replacement, and how many the key had. */
export interface Loss {
  readonly had: number;
  readonly lost: number;
}

/** How many rows the data type has already lost, and how many it had before. */
export interface TypeLosses {
  readonly lostBefore: number;
  readonly rowsBefore: number;
}

/** An answer that would delete too many rows, of its key or together with others of the data type. */
export class LossRefusal extends Refusal {
  readonly of: 'key' | 'type';

  constructor(of: 'key' | 'type', message: string) {
    super('suspicious', message);
    this.of = of;
  }
}

/** Thrown inside the commit to roll it back. */
export class TooManyLosses extends Error {
  override readonly name = 'TooManyLosses';
  readonly refusals: ReadonlyMap<number, LossRefusal>;

  constructor(refusals: ReadonlyMap<number, LossRefusal>) {
    super('answers would take away more rows than may go at once');
    this.refusals = refusals;
  }
}

// With few rows, even one is a large share.
const alwaysAllowed = 10;

/** How many of these rows may be deleted. */
function allowed(rows: number, share: number): number {
  return share === 0 ? 0 : Math.max(alwaysAllowed, Math.floor(rows * share));
}

/** The answers that would delete too many rows of their own key. */
export function keySuspects(losses: ReadonlyMap<number, Loss>, share: number): Map<number, LossRefusal> {
  const suspects = [...losses].filter(([, { had, lost }]) => lost > allowed(had, share));
  return new Map(
    suspects.map(([job, { had, lost }]) => [
      job,
      new LossRefusal('key', `${lost} of the ${had} rows of its key would go; ${limit(share)}`),
    ]),
  );
}

/** The answers, in order, that exceed what the data type may lose. */
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
  // One message for all of them: jobs with the same message are turned back together.
  const message = `${lost} of the ${rowsBefore} rows of the data type have gone lately, and more would; ${limit(share)}`;
  return new Map(suspects.map((job) => [job, new LossRefusal('type', message)]));
}

function limit(share: number): string {
  return `at most ${Math.round(share * 1000) / 10} % may go at once`;
}

/** Throws TooManyLosses if answers already written in this transaction delete too many rows. */
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
  // Serialises transactions that delete rows, so that together they cannot exceed the limit.
  const [row] = await tx.query<{ before: number }>(
    'select pgfresh_engine.count_losses($1::int, $2::bigint) as before',
    [id, lost],
  );
  const lostBefore = row!.before;
  const all = lostBefore + lost;
  if (share > 0 && all <= alwaysAllowed) return new Map();
  // Stop counting rows once there are enough to allow the loss.
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

/** Records that answers were refused for deleting too many rows, in the transaction that ends their jobs. */
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
