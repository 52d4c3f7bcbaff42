import type { Queryable } from '../database/index.ts';
import { holdSource } from '../sources/index.ts';
import { outcomes } from './outcomes.ts';
import type { RefreshType } from './refresh-type.ts';
import type { Fetched } from './refresher.ts';

// Such jobs count no retry, so a provider that says "retry now", or whose clock is slow, would be called in a loop.
const shortestHoldMs = 1_000;
const longestReason = 1_000;

/**
 * Pauses the whole source for as long as the provider asked in any of its answers. This happens before their jobs end,
 * so that a job that is put back is not claimed again at once, and in a separate transaction, which fails for other
 * reasons and locks the rows of sources in another order.
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
