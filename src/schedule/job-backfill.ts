import { timeText } from '../config/index.ts';
import type { Queryable } from '../database/index.ts';
import { PgfreshError } from '../errors/index.ts';
import { parseCron } from './cron.ts';
import { nextSlots } from './cron-slot.ts';
import { clockOf } from './job-next.ts';
import { decide } from './job-request.ts';
import { requireJob, showJob } from './job-status.ts';
import { blackoutOf } from './slot-plan.ts';

export interface BackfillOptions {
  /** Start of the range, inclusive. */
  readonly from: Date;
  /** End of the range, exclusive; default: now. */
  readonly until?: Date | undefined;
  /** Maximum runs per minute. */
  readonly perMinute?: number | undefined;
  /** Only report what would run. */
  readonly dryRun?: boolean | undefined;
}

export interface Backfill {
  readonly job_name: string;
  /** Slots in the range, and how many of them fall on days on which the job does not run. */
  readonly slots: number;
  readonly blackout: number;
  readonly first: Date | null;
  readonly last: Date | null;
  /** Slots to run now, and those that succeeded or are open already. */
  readonly queued: number;
  readonly skipped: number;
  /** Slots whose history was pruned: they may have succeeded, and are left alone. */
  readonly forgotten: number;
  /** Live scheduler processes; with none, nothing runs yet. */
  readonly schedulers: number;
}

/** Progress of a backfill, in slots. */
export interface BackfillProgress {
  readonly total: number;
  readonly open: number;
  readonly succeeded: number;
  readonly failed: number;
  readonly cancelled: number;
}

const mostSlots = 10_000;

/** Runs the slots of a past range one after the other, beside what is due. */
export async function backfillJob(db: Queryable, name: string, options: BackfillOptions): Promise<Backfill> {
  const { from, perMinute = 60, dryRun = false } = options;
  const job = await showJob(db, name);
  const now = await clockOf(db);
  const until = options.until && options.until < now ? options.until : now;
  if (job.schedule === null)
    throw refused(
      `The job ${name} has no slots in the past: it runs some time after its last run. "pgfresh jobs run" runs it now`,
    );
  if (from >= until)
    throw refused(
      `The time must begin before it ends, and before now; it is from ${timeText(from)} to ${timeText(until)}`,
    );
  const before = new Date(from.getTime() - 1);
  const all = nextSlots(parseCron(job.schedule), job.timezone, before, mostSlots + 1, until);
  if (all.length > mostSlots) throw refused(`That time has more than ${mostSlots} slots; take a shorter one`);
  const isBlackout = blackoutOf({ blackoutDates: job.blackout_dates, timezone: job.timezone });
  const slots = all.filter((slot) => !isBlackout(slot));
  const wanted = slots.length > 0 && !dryRun;
  const none = { queued: 0, skipped: 0, forgotten: 0 };
  const { queued, skipped, forgotten } = wanted ? await queue(db, name, slots, perMinute) : none;
  return {
    job_name: name,
    slots: slots.length,
    blackout: all.length - slots.length,
    first: slots[0] ?? null,
    last: slots.at(-1) ?? null,
    queued,
    skipped,
    forgotten,
    schedulers: await livingSchedulers(db),
  };
}

/** Progress of a job's backfill between two instants. */
export async function backfillProgress(
  db: Queryable,
  name: string,
  from: Date,
  until: Date,
): Promise<BackfillProgress> {
  const { id } = await requireJob(db, name);
  const [row] = await db.query<BackfillProgress>(
    `select count(*) as total, count(*) filter (where state in ('queued', 'waiting', 'running')) as open, count(*) filter (where state = 'succeeded') as succeeded,
       count(*) filter (where state = 'failed') as failed, count(*) filter (where state = 'cancelled') as cancelled
     from (
       select distinct on (scheduled_for) state from pgfresh.scheduled_job_runs
       where job_id = $1::int and triggered_by = 'backfill' and scheduled_for >= $2::timestamptz and scheduled_for <= $3::timestamptz
       order by scheduled_for, attempt desc
     ) as newest`,
    [id, from, until],
  );
  return row!;
}

async function queue(db: Queryable, name: string, slots: readonly Date[], perMinute: number) {
  const backfill = 'select pgfresh.backfill_scheduled_job($1::text, $2::timestamptz[], $3::int) as answer';
  const [row] = await decide<{ answer: Pick<Backfill, 'queued' | 'skipped' | 'forgotten'> }>(db, backfill, [
    name,
    slots,
    perMinute,
  ]);
  return row!.answer;
}

export async function livingSchedulers(db: Queryable): Promise<number> {
  const [row] = await db.query<{ count: number }>(
    `select count(*) as count from pgfresh_engine.process where kind = 'scheduler' and lease_until > (select pgfresh.clock())`,
  );
  return row!.count;
}

function refused(problem: string): PgfreshError {
  return new PgfreshError('PGF_ARGUMENT_INVALID', { problem });
}
