import type { Queryable } from '../database/index.ts';
import { readOverview, type Overview } from '../watch/index.ts';

const goodForMs = 1_000;

/** Everything at a glance, for any number of pages that ask: the database is read once a second at the most. */
export function sharedOverview(db: Queryable): () => Promise<Overview | undefined> {
  let readAt = -Infinity;
  let reading = false;
  let last: Promise<Overview | undefined>;
  return () => {
    if (!reading && performance.now() - readAt >= goodForMs) {
      [readAt, reading] = [performance.now(), true];
      last = readOverview(db).finally(() => (reading = false));
    }
    return last;
  };
}
