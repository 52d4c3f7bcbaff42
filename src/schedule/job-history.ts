import type { Queryable } from '../database/index.ts';
import { requireJob } from './job-status.ts';
import type { SkipReason } from './slot-plan.ts';

export const runStates = ['queued', 'waiting', 'running', 'succeeded', 'failed', 'cancelled', 'skipped'] as const;

/** One row of `pgfresh.scheduled_job_runs`: one attempt to run a slot, or a range of skipped slots. */
export interface JobRun {
  readonly id: number;
  readonly state: (typeof runStates)[number];
  readonly triggered_by: 'scheduler' | 'manual' | 'catchup' | 'backfill';
  /** The slot; for skips, the first. */
  readonly scheduled_for: Date;
  /** For skips, the last slot and their number. */
  readonly scheduled_to: Date | null;
  readonly occurrences: number;
  readonly attempt: number;
  readonly started_at: Date | null;
  readonly completed_at: Date | null;
  readonly duration_ms: number | null;
  readonly lateness_ms: number | null;
  readonly success: boolean | null;
  readonly reason: SkipReason | null;
  readonly message: string | null;
  readonly details: unknown;
  readonly params: unknown;
  readonly worker: string | null;
  readonly requested_by: string | null;
}

const columns = `id, state, triggered_by, scheduled_for, scheduled_to, occurrences, attempt, started_at, completed_at, duration_ms, lateness_ms, success,
  reason, message, details, params, worker, requested_by`;

export interface HistoryOptions {
  readonly limit?: number | undefined;
  /** Only runs older than this one, for paging. */
  readonly before?: number | undefined;
  readonly state?: JobRun['state'] | undefined;
}

/** A job's runs and skips, newest first. */
export async function jobHistory(db: Queryable, name: string, options: HistoryOptions = {}): Promise<JobRun[]> {
  const { limit = 20, before, state } = options;
  const { id } = await requireJob(db, name);
  return db.query<JobRun>(
    `select ${columns} from pgfresh.scheduled_job_runs
     where job_id = $1::int and id < coalesce($2::bigint, 9223372036854775807) and state = coalesce($3::text, state)
     order by id desc limit $4::int`,
    [id, before, state, limit],
  );
}

/** One run; undefined if its history was pruned. */
export async function showRun(db: Queryable, run: number): Promise<JobRun | undefined> {
  const [row] = await db.query<JobRun>(`select ${columns} from pgfresh.scheduled_job_runs where id = $1::bigint`, [
    run,
  ]);
  return row;
}
