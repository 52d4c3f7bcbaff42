import type { Fresh } from 'pgfresh/client';

export type Condition = 'fresh' | 'stale' | 'fetching' | 'failing' | 'missing' | 'resting' | 'empty';

/** How a pair looks to a person. The server says it when something changes; that time passes, the page sees itself. */
export function conditionOf({ state, reason, dueAt, rows }: Fresh<unknown>, now: number): Condition {
  if (reason === 'gate' && rows.length > 0) return 'resting';
  if (state === 'failing' || state === 'refused') return 'failing';
  // It was asked for, and there is nothing.
  if (state === 'missing' && reason === 'held') return 'empty';
  if (state === 'loading' || state === 'missing') return 'missing';
  if (state === 'refreshing') return rows.length === 0 ? 'missing' : 'fetching';
  return state === 'stale' || (dueAt !== null && dueAt.getTime() < now) ? 'stale' : 'fresh';
}
