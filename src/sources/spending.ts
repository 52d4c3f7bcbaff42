import type { Queryable } from '../database/index.ts';

/** Stops all calls to all sources. False if already stopped. */
export async function stopSpending(db: Queryable, reason: string): Promise<boolean> {
  const stopped = await db.query(
    'insert into pgfresh.spending_stop (reason) values ($1::text) on conflict do nothing returning reason',
    [reason],
  );
  return stopped.length > 0;
}

/** Undoes `stopSpending`. False if spending was not stopped. */
export async function resumeSpending(db: Queryable): Promise<boolean> {
  return (await db.query('delete from pgfresh.spending_stop returning reason')).length > 0;
}
