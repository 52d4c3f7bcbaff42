import type { Queryable } from '../database/index.ts';
import { holdSource } from '../sources/index.ts';
import { outcomes } from './outcomes.ts';
import type { RefreshType } from './refresh-type.ts';
import type { Fetched } from './refresher.ts';

// A provider that says "again at once", or whose clock is behind, would be asked without end: such a job counts no retry.
const shortestHoldMs = 1_000;
const longestReason = 1_000;

/**
 * Leaves the whole source alone for as long as the provider has asked for in any of its answers. Before their jobs are
 * ended, so that none that is put back is claimed again meanwhile; and not with their end, which has other failures and
 * takes the rows of sources in another order.
 */
export async function holdIfAsked(db: Queryable, type: RefreshType, answers: readonly Fetched[]): Promise<void> {
  const limited = answers.flatMap((fetched) =>
    'refusal' in fetched && outcomes[fetched.refusal.outcome].nextLook === 'source' ? [fetched] : [],
  );
  const waits = [
    ...limited.flatMap(({ retryAfterMs: ms }) => (ms === undefined ? [] : Math.max(shortestHoldMs, ms))),
    ...answers.flatMap(({ retryAfterMs }) => retryAfterMs ?? []),
  ];
  const longest = Math.max(0, ...waits);
  if (longest === 0 && limited.length === 0) return;
  const reason = limited[0]?.refusal.message ?? 'the provider says that its limit is used up';
  const ms = longest > 0 ? longest : undefined;
  await holdSource(db, type.sourceId, ms, reason.slice(0, longestReason));
}
