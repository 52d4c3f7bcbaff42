import type { Fresh } from 'pgfresh/client';

/** How the data of a pair looks to a person. Whether it is being refreshed is another matter. */
export type Condition = 'fresh' | 'stale' | 'older' | 'failing' | 'missing' | 'resting' | 'empty' | 'gone';

/** What is not refreshed because its exchange is closed rests, whatever else would keep it from being refreshed. */
export function conditionOf({ status, state, rows, reason, error }: Fresh<unknown>, isClosed = false): Condition {
  // What the source says is not there, and is still shown.
  if (state === 'empty' && rows.length > 0) return 'gone';
  if (status === 'empty' || state === 'empty') return 'empty';
  if (status === 'loading') return 'missing';
  if (status === 'error' || state === 'refused') return 'failing';
  if (reason === 'gate' || (isClosed && state !== 'fresh')) return 'resting';
  if (state === 'fresh') return 'fresh';
  if (error) return 'failing';
  return state === 'older_source' ? 'older' : 'stale';
}
