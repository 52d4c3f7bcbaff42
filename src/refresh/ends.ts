import type { Queryable } from '../database/index.ts';
import type { ClaimedJob, FailureReason, JobEnd, JobSuccess, Queue } from '../queue/index.ts';
import { outcomes, type Refusal, type SuccessName } from './outcomes.ts';
import type { Cost } from './refresher.ts';

/** All calls by which a refresh ends jobs in the queue. */

export interface Ended {
  readonly job: Pick<ClaimedJob, 'id' | 'attempt' | 'request'>;
  readonly cost: Cost;
}

/** A job that succeeded, and the times of its row. */
export interface Success extends Ended, Pick<JobSuccess, 'rowAt' | 'age' | 'sourceAt'> {
  readonly outcome: SuccessName;
}

/** Which jobs this worker still holds. */
export interface Fence {
  /** Jobs still running in our attempt; locked until the transaction ends. */
  readonly ours: readonly number[];
  /** Jobs that have already ended, perhaps by an unconfirmed commit of ours. */
  readonly done: readonly number[];
  /** Ours too, but the data type was redefined since: their answers must not be written. */
  readonly outdated: readonly number[];
  /** The database's time, as text, because a Date loses microseconds. */
  readonly now: string;
}

const fenceStatement = {
  name: 'pgfresh.fence',
  text: 'select ours, done, outdated, now::text as now from pgfresh_engine.fence_jobs($1::int, $2::bigint[], $3::int[], $4::text[], $5::uuid[])',
} as const;

/** Locks the jobs that are still ours. Must come first in the transaction. */
export async function fenceJobs(
  tx: Queryable,
  type: number,
  jobs: readonly Pick<ClaimedJob, 'id' | 'attempt' | 'request' | 'key'>[],
): Promise<Fence> {
  const [fence] = await tx.query<Fence>(fenceStatement, [
    type,
    jobs.map(({ id }) => id),
    jobs.map(({ attempt }) => attempt),
    jobs.map(({ key }) => key),
    jobs.map(({ request }) => request),
  ]);
  return fence!;
}

/** Ends jobs of one data type that succeeded, each with its outcome. */
export async function completeJobs(
  queue: Queue,
  tx: Queryable,
  ends: readonly Success[],
  commitMs: number,
): Promise<void> {
  const successes = ends.map((end) => {
    const { outcome, rowAt, age, sourceAt } = end;
    return { ...jobEnd(end), outcome, rowAt, age, sourceAt, commitMs: Math.round(commitMs) };
  });
  await queue.complete(tx, successes);
}

/** A job that did not succeed, and why. */
export interface FailedJob extends Ended {
  readonly refusal: Pick<Refusal, 'outcome' | 'message'>;
}

/** Whether a job is put back. Jobs with a rejected API key are decided in SQL, which counts rejections. */
export function isPutBack({ refusal }: Pick<FailedJob, 'refusal'>): boolean {
  const { verdict, nextLook } = outcomes[refusal.outcome];
  return verdict === 'put_back' && nextLook !== 'key';
}

/** Fails jobs, or puts them back, each with its outcome. */
export async function turnBackJobs(queue: Queue, tx: Queryable, failures: readonly FailedJob[]): Promise<void> {
  const ends = failures.map(failedEnd);
  await (failures.every(isPutBack) ? queue.putBack(tx, ends) : queue.fail(tx, ends));
}

function failedEnd(failure: FailedJob): JobEnd & FailureReason {
  const { outcome, message: error } = failure.refusal;
  const { verdict, breaker: counts } = outcomes[outcome];
  return { ...jobEnd(failure), outcome, error, permanent: verdict === 'fail', counts };
}

function jobEnd({ job, cost }: Ended): JobEnd {
  const { bytes, calls, needs, fetchMs, validateMs } = cost;
  return {
    id: job.id,
    attempt: job.attempt,
    request: job.request,
    bytes,
    calls,
    ...(needs === undefined ? {} : { needs }),
    fetchMs: Math.round(fetchMs),
    validateMs: Math.round(validateMs),
  };
}
