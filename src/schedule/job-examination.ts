import { isZone, type ResolvedConfig } from '../config/index.ts';
import type { Queryable } from '../database/index.ts';
import { asPgfreshError, PgfreshError } from '../errors/index.ts';
import { checkedCron } from './cron-slot.ts';
import { isSettled, previewJobs } from './job-sync.ts';
import { isOwnHandler } from './own-jobs.ts';

/** One check of the jobs that was made; `pgfresh check` shows it beside its own. */
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
  readonly problem: string | null;
  readonly next_step: string | null;
}

type Configured = Pick<ResolvedConfig, 'jobs' | 'file'>;

/** Everything about jobs that can be wrong without anybody noticing: functions, handlers, times and zones. */
export async function examineJobs(database: Queryable, config: Configured): Promise<readonly JobFinding[]> {
  const jobs = await database.query<RegisteredJob>(`
    select j.name, j.kind, j.function_name, j.schedule, j.timezone, j.enabled, p.problem, p.next_step
    from pgfresh.scheduled_jobs as j left join lateral pgfresh.job_problem(j) as p on true order by j.name`);
  const now = new Date();
  const problems = jobs.filter(({ enabled }) => enabled).flatMap((job) => problemOfJob(job, config, now));
  const count = jobs.length === 0 ? 'no jobs yet' : `${jobs.length} job${jobs.length === 1 ? '' : 's'}`;
  const state =
    jobs.length === 0
      ? ''
      : problems.length === 0
        ? ', all of them can run'
        : `, ${problems.length} of them can not run`;
  return [
    { name: 'jobs', state: problems.length === 0 ? 'ok' : 'warning', detail: `${count}${state}` },
    ...problems,
    ...(await differences(database, config)),
  ];
}

function problemOfJob(job: RegisteredJob, { jobs, file }: Configured, now: Date): JobFinding[] {
  const fatal = (detail: string, code: string, next: string): JobFinding[] => [
    { name: `job ${job.name}`, state: 'fatal', detail, code, next },
  ];
  if (job.problem !== null) return fatal(job.problem, 'PGF_JOB_INVALID', job.next_step!);
  const isKnown =
    isOwnHandler(job.function_name) || jobs?.some(({ name, handler }) => name === job.function_name && handler);
  if (job.kind === 'handler' && !isKnown) {
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
