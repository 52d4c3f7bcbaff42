import { isZone, type ResolvedConfig } from '../config/index.ts';
import type { Queryable } from '../database/index.ts';
import { asPgfreshError, PgfreshError } from '../errors/index.ts';
import { checkedCron } from './cron-slot.ts';
import { livingSchedulers } from './job-backfill.ts';
import type { JobStatus } from './job-status.ts';
import { isSettled, previewJobs } from './job-sync.ts';
import { isOwnHandler } from './own-jobs.ts';

/** One check of the jobs, listed by `pgfresh check`. */
interface JobFinding {
  readonly name: string;
  readonly state: 'ok' | 'warning' | 'fatal';
  readonly detail: string;
  readonly code?: string;
  readonly next?: string;
}

interface RegisteredJob {
  readonly name: string;
  readonly kind: 'sql' | 'handler';
  readonly function_name: string;
  readonly schedule: string | null;
  readonly timezone: string;
  readonly enabled: boolean;
  /** Why it cannot run. */
  readonly problem: string | null;
  readonly next_step: string | null;
  /** Its state where it can run, in the same words as elsewhere. */
  readonly state: JobStatus['state'];
  readonly trouble: string | null;
  readonly trouble_step: string | null;
  /** Whether a running scheduler has its handler. */
  readonly is_served: boolean;
}

type Configured = Pick<ResolvedConfig, 'jobs' | 'file'>;

/** Job problems that could go unnoticed: functions, handlers, times, zones, failures, lateness, no scheduler. */
export async function examineJobs(database: Queryable, config: Configured): Promise<readonly JobFinding[]> {
  const jobs = await database.query<RegisteredJob>(`
    select j.name, j.kind, j.function_name, j.schedule, j.timezone, j.enabled, p.problem, p.next_step,
      s.state, s.problem as trouble, s.next_step as trouble_step,
      exists (
        select from pgfresh_engine.scheduler_service as c join pgfresh_engine.process as p on p.id = c.scheduler
        where p.lease_until > pgfresh.clock() and j.function_name = any (c.handlers)
      ) as is_served
    from pgfresh.scheduled_jobs as j
    join pgfresh.scheduled_job_status as s on s.job_id = j.id
    left join lateral pgfresh_engine.job_problem(j) as p on true order by j.name`);
  const now = new Date();
  const enabled = jobs.filter((job) => job.enabled);
  const problems = enabled.flatMap((job) => problemOfJob(job, config, now));
  const broken = new Set(problems.map(({ name }) => name));
  const troubles = enabled.flatMap((job) => (broken.has(findingName(job)) ? [] : troubleOfJob(job)));
  const stuck = problems.length + troubles.filter(({ code }) => code === troubleCodes.problem).length;
  const sentence = [
    jobs.length === 0 ? 'no jobs yet' : `${jobs.length} job${jobs.length === 1 ? '' : 's'}`,
    ...(stuck > 0 ? [`${stuck} of them cannot run`] : []),
    ...(['failing', 'late'] as const).flatMap((state) => {
      const count = troubles.filter(({ code }) => code === troubleCodes[state]).length;
      return count > 0 ? [`${count} of them ${count === 1 ? 'is' : 'are'} ${state}`] : [];
    }),
  ];
  const isWell = problems.length + troubles.length === 0;
  if (isWell && jobs.length > 0) sentence.push('all of them are well');
  return [
    { name: 'jobs', state: isWell ? 'ok' : 'warning', detail: sentence.join(', ') },
    ...problems,
    ...(await differences(database, config)),
    ...(await shortened(database, troubles)),
  ];
}

const troubleCodes = { problem: 'PGF_JOB_INVALID', failing: 'PGF_JOB_FAILING', late: 'PGF_JOB_LATE' } as const;

/** A job that could run as far as this process can tell, but does not run as it should. */
function troubleOfJob(job: RegisteredJob): JobFinding[] {
  const { name, state, trouble, trouble_step } = job;
  if (state !== 'problem' && state !== 'failing' && state !== 'late') return [];
  const { message, code } = new PgfreshError(troubleCodes[state], { job: name, problem: trouble! });
  return [{ name: findingName(job), state: 'warning', detail: message, code, next: trouble_step! }];
}

/** Without a running scheduler, report that once for all jobs that need one now. */
async function shortened(database: Queryable, troubles: readonly JobFinding[]): Promise<readonly JobFinding[]> {
  const failing = troubles.filter(({ code }) => code === troubleCodes.failing);
  const count = troubles.length - failing.length;
  if (count === 0 || (await livingSchedulers(database)) > 0) return troubles;
  const detail = `no scheduler runs, and ${count === 1 ? '1 job needs' : `${count} jobs need`} one`;
  const next = 'Start one: pgfresh run --roles scheduler.';
  return [{ name: 'scheduler', state: 'warning', detail, code: troubleCodes.late, next }, ...failing];
}

function findingName({ name }: RegisteredJob): string {
  return `job ${name}`;
}

function problemOfJob(job: RegisteredJob, { jobs, file }: Configured, now: Date): JobFinding[] {
  const fatal = (detail: string, code: string, next: string): JobFinding[] => [
    { name: findingName(job), state: 'fatal', detail, code, next },
  ];
  if (job.problem !== null) return fatal(job.problem, 'PGF_JOB_INVALID', job.next_step!);
  const isKnown =
    isOwnHandler(job.function_name) || jobs?.some(({ name, handler }) => name === job.function_name && handler);
  if (job.kind === 'handler' && !isKnown) {
    // A scheduler with another configuration runs it; the job's state tells how that goes.
    if (job.is_served) return [];
    if (file === undefined) {
      const problem = `the handler "${job.function_name}" is not known`;
      const { message, code, next } = new PgfreshError('PGF_CONFIG_ABSENT', { problem });
      return fatal(message, code, next);
    }
    return fatal(
      `this configuration has no handler "${job.function_name}"`,
      'PGF_JOB_INVALID',
      'Define the job in pgfresh.config.ts, or disable its row.',
    );
  }
  try {
    if (job.schedule !== null) checkedCron(job.schedule, job.timezone, now);
    else if (!isZone(job.timezone)) checkedCron('* * * * *', job.timezone, now);
    return [];
  } catch (error) {
    const { message, code, next } = asPgfreshError(error);
    return fatal(message, code, next);
  }
}

async function differences(database: Queryable, config: Configured): Promise<JobFinding[]> {
  const diff = await previewJobs(database, config);
  if (isSettled(diff)) return [];
  const names = [
    ...[...diff.added, ...diff.changed].map(({ name }) => name),
    ...diff.disabled.map((name) => `${name} (disabled)`),
  ];
  const detail = `the database differs from the configuration: ${names.join(', ')}`;
  return [{ name: 'jobs', state: 'warning', detail, next: 'Run "pgfresh migrate".' }];
}
