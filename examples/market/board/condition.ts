import type { Fresh } from 'pgfresh/client';

export type Condition = 'fresh' | 'stale' | 'fetching' | 'failing' | 'missing' | 'resting' | 'empty';

/**
 * How a pair looks to a person. The server says it when something changes; that time passes, the page sees itself. What
 * is not refreshed because its exchange is closed rests, whatever else would keep it from being refreshed.
 */
export function conditionOf({ state, reason, dueAt, rows }: Fresh<unknown>, now: number, isClosed = false): Condition {
  const isDue = state !== 'fresh' || (dueAt !== null && dueAt.getTime() < now);
  if (rows.length > 0 && state !== 'refused' && (reason === 'gate' || (isClosed && isDue))) return 'resting';
  if (state === 'failing' || state === 'refused') return 'failing';
  // It was asked for, and there is nothing.
  if (state === 'missing' && reason === 'held') return 'empty';
  if (state === 'loading' || state === 'missing') return 'missing';
  if (state === 'refreshing') return rows.length === 0 ? 'missing' : 'fetching';
  return isDue ? 'stale' : 'fresh';
}
