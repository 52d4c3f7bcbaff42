import { setTimeout as wait } from 'node:timers/promises';
import type { Queryable } from '../../src/database/index.ts';

/** Resolves when this many sessions of the database wait for a lock. */
export async function blocked(db: Queryable, count = 1): Promise<void> {
  for (;;) {
    const [row] = await db.query<{ count: number }>(
      `select count(*)::int as count from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
    );
    if (row!.count >= count) return;
    // The sessions need CPU time too.
    await wait(2);
  }
}
