import type { Queryable } from '../database/index.ts';

/** Spends nothing from now on, with any source. False if it was stopped already. */
export async function stopSpending(db: Queryable, reason: string): Promise<boolean> {
  const [row] = await db.query<{ done: boolean }>('select pgfresh.stop_spending($1::text) as done', [reason]);
  return row!.done;
}

/** Undoes `stopSpending`. False if nothing was stopped. */
export async function resumeSpending(db: Queryable): Promise<boolean> {
  const [row] = await db.query<{ done: boolean }>('select pgfresh.resume_spending() as done');
  return row!.done;
}
