import type { Fresh } from 'pgfresh/client';

/** The state of a pair's data for a person. Whether it is being refreshed is separate. */
export type Condition = 'fresh' | 'stale' | 'older' | 'failing' | 'missing' | 'resting' | 'empty' | 'gone';

/** While its exchange is closed, a pair is resting, whatever else would block a refresh. */
export function conditionOf({ status, state, rows, reason, error }: Fresh<unknown>, isClosed = false): Condition {
  // The source says it does not exist, and the old row is still shown.
  if (state === 'empty' && rows.length > 0) return 'gone';
  if (status === 'empty' || state === 'empty') return 'empty';
  if (status === 'loading') return 'missing';
  if (status === 'error' || state === 'refused') return 'failing';
  if (reason === 'gate' || (isClosed && state !== 'fresh')) return 'resting';
  if (state === 'fresh') return 'fresh';
  if (error) return 'failing';
  return state === 'older_source' ? 'older' : 'stale';
}
