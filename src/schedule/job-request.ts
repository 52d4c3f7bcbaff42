import { failureOf, storableJson, type Queryable } from '../database/index.ts';
import { PgfreshError, problemOf } from '../errors/index.ts';
import { pause } from '../lifecycle/index.ts';
import { showRun, type JobRun } from './job-history.ts';
import { requireJob, showJob, type JobDetails } from './job-status.ts';

/** Answer of `pgfresh.trigger_scheduled_job`: accepted, or refused because of the named run, which is under way. */
export interface Triggered {
  readonly success: boolean;
  readonly reason?: 'overlap';
  readonly run_id: number;
  readonly job_name: string;
  /** Processes that could run it now. */
  readonly schedulers?: number;
  readonly message: string;
}

/** Answer of `pgfresh.cancel_scheduled_run`. */
export interface Cancelled {
  readonly success: boolean;
  readonly run_id: number;
  readonly job_name: string;
  readonly state: JobRun['state'] | 'cancelling';
  readonly message: string;
}

const pollMs = 100;

/** Runs a job now, outside its schedule, with its own parameters or these. */
export async function triggerJob(db: Queryable, name: string, params?: object): Promise<Triggered> {
  await requireJob(db, name);
  const trigger = 'select pgfresh.trigger_scheduled_job($1::text, $2::jsonb) as answer';
  const [row] = await decide<{ answer: Triggered }>(db, trigger, [name, params && storableJson(params)]);
  return row!.answer;
}

/** Waits for a run to end; undefined if the signal comes first or its history was pruned. */
export async function endOfRun(db: Queryable, run: number, signal: AbortSignal): Promise<JobRun | undefined> {
  for (;;) {
    const found = await showRun(db, run);
    if (!found || found.completed_at !== null) return found;
    if (signal.aborted) return undefined;
    await pause(pollMs, signal);
  }
}

/** The next attempt of a failed run, if its job is retried. */
export interface Retry {
  readonly run_id: number;
  readonly attempt: number;
  readonly run_at: Date;
}

export async function retryOf(db: Queryable, run: number): Promise<Retry | undefined> {
  const [retry] = await db.query<Retry>(
    `select n.id as run_id, n.attempt, coalesce(n.run_at, n.started_at) as run_at
     from pgfresh.scheduled_job_runs as r
     join pgfresh.scheduled_job_runs as n on n.job_id = r.job_id and n.id > r.id and n.scheduled_for = r.scheduled_for
       and n.triggered_by = r.triggered_by and n.attempt = r.attempt + 1
     where r.id = $1::bigint and r.state = 'failed' limit 1`,
    [run],
  );
  return retry;
}

/** Pauses a job for a while or until `resumeJob`. A run under way goes on; slots are recorded as skipped. */
export async function pauseJob(
  db: Queryable,
  name: string,
  { ms, reason }: { ms?: number | undefined; reason?: string | undefined } = {},
): Promise<JobDetails> {
  await requireJob(db, name);
  await decide(
    db,
    `update pgfresh.scheduled_jobs
     set paused_until = coalesce(pgfresh.clock() + make_interval(secs => $2::float8 / 1000), 'infinity'), paused_reason = $3::text
     where name = $1::text collate "C"`,
    [name, ms, reason],
  );
  return showJob(db, name);
}

export async function resumeJob(db: Queryable, name: string): Promise<JobDetails> {
  await requireJob(db, name);
  const resume = 'update pgfresh.scheduled_jobs set paused_until = null where name = $1::text collate "C"';
  await decide(db, resume, [name]);
  return showJob(db, name);
}

/** Cancels a job's given run, its running or else waiting run, or all runs waiting for a backfill. */
export async function cancelJob(
  db: Queryable,
  name: string,
  { run, backfill = false }: { run?: number | undefined; backfill?: boolean | undefined } = {},
): Promise<Cancelled[]> {
  const { id } = await requireJob(db, name);
  const open = await db.query<{ id: number; state: string; triggered_by: string }>(
    `select id, state, triggered_by from pgfresh.scheduled_job_runs
     where job_id = $1::int and state in ('queued', 'waiting', 'running') order by state <> 'running', state <> 'waiting', run_at, scheduled_for`,
    [id],
  );
  const first = open.find(({ triggered_by: by }) => by !== 'backfill') ?? open[0];
  const wanted = backfill
    ? open.filter(({ triggered_by: by }) => by === 'backfill').map((one) => one.id)
    : [run ?? first?.id].filter((one) => one !== undefined);
  if (run !== undefined && !open.some((one) => one.id === run)) await refuseOtherRun(db, name, id, run);
  // Last one first, so that ending one run does not start another that is to be cancelled too.
  const cancelled = await decide<{ answer: Cancelled }>(
    db,
    'select pgfresh.cancel_scheduled_run(id) as answer from unnest($1::bigint[]) with ordinality as t(id, place) order by place desc',
    [wanted],
  );
  return cancelled.map(({ answer }) => answer);
}

async function refuseOtherRun(db: Queryable, name: string, job: number, run: number): Promise<void> {
  const known = 'select from pgfresh.scheduled_job_runs where id = $1::bigint and job_id = $2::int';
  if ((await db.query(known, [run, job])).length > 0) return;
  throw new PgfreshError('PGF_RUN_UNKNOWN', { problem: `The job ${name} has no run ${run}` });
}

/** Sends a statement that needs special rights. */
export async function decide<Row extends object>(db: Queryable, text: string, values: unknown[]): Promise<Row[]> {
  try {
    return await db.query<Row>(text, values);
  } catch (error) {
    if (failureOf(error) !== 'permission') throw error;
    const problem = `This login may not decide about jobs: ${problemOf(error)}. It needs the role pgfresh_operator, or pgfresh_scheduler for jobs of its own`;
    throw new PgfreshError('PGF_JOB_RIGHT', { problem }, { cause: error });
  }
}
