import { nearMiss } from '../config/index.ts';
import type { Queryable } from '../database/index.ts';
import { PgfreshError } from '../errors/index.ts';

/** A job as in `pgfresh.scheduled_job_status`, with its next run. */
export interface JobStatus {
  readonly name: string;
  readonly description: string | null;
  readonly kind: 'sql' | 'handler';
  /** Cron, or null for a random delay between two bounds after each run. */
  readonly schedule: string | null;
  readonly timezone: string;
  readonly every_min_ms: number | null;
  readonly every_max_ms: number | null;
  readonly enabled: boolean;
  readonly managed_by: 'config' | 'sql';
  /** The first state that applies; docs/guides/scheduling.md describes them. */
  readonly state: 'problem' | 'disabled' | 'paused' | 'late' | 'failing' | 'running' | 'waiting' | 'ok';
  readonly problem: string | null;
  readonly next_step: string | null;
  readonly next_run_at: Date | null;
  readonly running_since: Date | null;
  /** Runs that are queued. */
  readonly waiting: number;
  readonly last_run_at: Date | null;
  readonly last_run_success: boolean | null;
  readonly last_message: string | null;
  readonly last_success_at: Date | null;
  readonly total_runs: number;
  readonly success_rate_percent: number | null;
  readonly success_rate_percent_7d: number | null;
  readonly p50_ms: number | null;
  readonly p95_ms: number | null;
  readonly lateness_p95_ms: number | null;
  readonly last_lateness_ms: number | null;
  readonly failures_in_a_row: number;
}

/** The same, with every column of its row. */
export interface JobDetails extends JobStatus {
  readonly function_name: string;
  readonly params: Readonly<Record<string, unknown>>;
  readonly failure_min_ms: number | null;
  readonly failure_max_ms: number | null;
  readonly timeout_ms: number;
  readonly retries: number;
  readonly retry_base_ms: number;
  readonly catch_up: 'once' | 'skip' | 'all';
  /** Null: the newest slot however late, or one day if all are caught up. */
  readonly catch_up_window_ms: number | null;
  readonly catch_up_max: number;
  readonly overlap: 'skip' | 'queue';
  readonly jitter_ms: number;
  /** Days in the job's zone, as 2026-12-25. */
  readonly blackout_dates: readonly string[];
  readonly paused_at: Date | null;
  readonly paused_by: string | null;
  readonly paused_reason: string | null;
  /** Null if the pause has no end, or the job is not paused. */
  readonly paused_until: Date | null;
  readonly owner: string;
  readonly created_at: Date;
  readonly updated_at: Date;
}

const ms = (column: string): string => `(1000 * extract(epoch from j.${column}))::float8 as ${column}_ms`;

const statusColumns = `s.name, s.description, s.kind, j.schedule, j.timezone, ${ms('every_min')}, ${ms('every_max')}, s.enabled, s.managed_by, s.state,
  s.problem, s.next_step, s.next_run_at, s.running_since, s.waiting, s.last_run_at, s.last_run_success, s.last_message, s.last_success_at, s.total_runs,
  s.success_rate_percent::float8, s.success_rate_percent_7d::float8, s.p50_ms::float8, s.p95_ms::float8, s.lateness_p95_ms::float8, s.last_lateness_ms,
  s.failures_in_a_row`;
const rowColumns = `j.function_name, j.params, ${ms('failure_min')}, ${ms('failure_max')}, ${ms('timeout')}, j.retries, ${ms('retry_base')}, j.catch_up,
  ${ms('catch_up_window')}, j.catch_up_max, j.overlap, ${ms('jitter')}, j.blackout_dates::text[], j.paused_at, j.paused_by, j.paused_reason,
  nullif(j.paused_until, 'infinity') as paused_until,
  j.owner::text, j.created_at, j.updated_at`;
const from = 'from pgfresh.scheduled_job_status as s join pgfresh.scheduled_jobs as j on j.id = s.job_id';

/** Job status by name. Each reads the job's newest runs, hence the limit; `after` the last name is the next page. */
export function listJobs(
  db: Queryable,
  { after = '', limit = 1_000 }: { after?: string | undefined; limit?: number | undefined } = {},
): Promise<JobStatus[]> {
  return db.query<JobStatus>(
    `select ${statusColumns} ${from} where s.name > $1::text collate "C" order by s.name limit $2::int`,
    [after, limit],
  );
}

export type TroubledJob = Pick<JobStatus, 'name' | 'next_step'> & { readonly problem: string };

/** Unhealthy jobs, by name. */
export function troubledJobs(db: Queryable): Promise<TroubledJob[]> {
  return db.query<TroubledJob>(
    `select name, problem, next_step from pgfresh.scheduled_job_status
     where enabled and state in ('problem', 'late', 'failing') order by name`,
  );
}

/** Status of one job. Throws for an unknown name, with the closest match. */
export async function showJob(db: Queryable, name: string): Promise<JobDetails> {
  if (!isJobName(name)) return refuseUnknownJob(db, name);
  const [job] = await db.query<JobDetails>(
    `select ${statusColumns}, ${rowColumns} ${from} where s.name = $1::text collate "C"`,
    [name],
  );
  return job ?? refuseUnknownJob(db, name);
}

/** Throws for an unknown name. */
export async function requireJob(db: Queryable, name: string): Promise<{ readonly id: number }> {
  if (!isJobName(name)) return refuseUnknownJob(db, name);
  const [job] = await db.query<{ id: number }>(
    'select id from pgfresh.scheduled_jobs where name = $1::text collate "C"',
    [name],
  );
  return job ?? refuseUnknownJob(db, name);
}

// Skip the query for an impossible name: the server would not even accept a zero character.
function isJobName(name: string): boolean {
  return /^[\w.-]{1,100}$/.test(name);
}

async function refuseUnknownJob(db: Queryable, name: string): Promise<never> {
  const rows = await db.query<{ name: string }>('select name from pgfresh.scheduled_jobs');
  const names = rows.map((row) => row.name);
  const near = nearMiss(name, names);
  const hint = near ? `; did you mean "${near}"?` : names.length === 0 ? '; there are none yet' : '';
  throw new PgfreshError('PGF_JOB_UNKNOWN', {
    problem: `There is no job ${JSON.stringify(name.slice(0, 100))}${hint}`,
  });
}
