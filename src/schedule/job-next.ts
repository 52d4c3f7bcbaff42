import type { Queryable } from '../database/index.ts';
import { parseCron } from './cron.ts';
import { nextSlots } from './cron-slot.ts';
import { showJob } from './job-status.ts';
import { forbiddenBy, type SkipReason } from './slot-plan.ts';

/** A slot to come, and why it will be skipped as things are. */
export interface NextSlot {
  readonly slot: Date;
  readonly skipped: SkipReason | null;
}

/** The next slots of a job; of one without cron, only the next, because the others depend on when its runs end. */
export async function nextJobSlots(db: Queryable, name: string, count: number): Promise<NextSlot[]> {
  const job = await showJob(db, name);
  if (job.schedule === null) return job.next_run_at === null ? [] : [{ slot: job.next_run_at, skipped: null }];
  const slots = nextSlots(parseCron(job.schedule), job.timezone, await clockOf(db), count);
  const reasonOf = forbiddenBy({
    enabled: job.enabled,
    pausedAt: job.paused_at,
    pausedUntil: job.paused_until,
    blackoutDates: job.blackout_dates,
    timezone: job.timezone,
  });
  return slots.map((slot) => ({ slot, skipped: reasonOf(slot) ?? null }));
}

/** The time by which the database decides. */
export async function clockOf(db: Queryable): Promise<Date> {
  const [row] = await db.query<{ now: Date }>('select pgfresh.clock() as now');
  return row!.now;
}
