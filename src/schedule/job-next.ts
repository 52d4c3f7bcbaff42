import type { Queryable } from '../database/index.ts';
import { parseCron } from './cron.ts';
import { nextSlots } from './cron-slot.ts';
import { showJob } from './job-status.ts';
import { forbiddenBy, type SkipReason } from './slot-plan.ts';

/** A coming slot, and why it would be skipped as things are. */
export interface NextSlot {
  readonly slot: Date;
  readonly skipped: SkipReason | null;
}

/** A job's next slots; without cron only the next one, because later ones depend on when runs end. */
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

/** The database's clock. */
export async function clockOf(db: Queryable): Promise<Date> {
  const [row] = await db.query<{ now: Date }>('select pgfresh.clock() as now');
  return row!.now;
}
