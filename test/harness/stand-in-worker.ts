import type { Queryable } from '../../src/database/index.ts';

/** A worker that is alive and may refresh anything, for tests that are about something else. */
export async function standInWorker(db: Queryable): Promise<void> {
  await db.query(`select pgfresh_engine.register_process('worker', 'stand-in')`);
  await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
}
