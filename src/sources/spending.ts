import type { Queryable } from '../database/index.ts';

/** Spends nothing from now on, with any source. False if it was stopped already. */
export async function stopSpending(db: Queryable, reason: string): Promise<boolean> {
  const stopped = await db.query(
    'insert into pgfresh.spending_stop (reason) values ($1::text) on conflict do nothing returning reason',
    [reason],
  );
  return stopped.length > 0;
}

/** Undoes `stopSpending`. False if nothing was stopped. */
export async function resumeSpending(db: Queryable): Promise<boolean> {
  return (await db.query('delete from pgfresh.spending_stop returning reason')).length > 0;
}
