import { expect, it } from 'vitest';
import { jobEvents, jobStates, transitions, type JobEvent, type JobState } from '../../src/queue/index.ts';
import { freezeClock } from '../harness/clock.ts';
import { QueueScene } from './scene.ts';

const scene = await QueueScene.open();
const clock = await freezeClock(scene.db);
await scene.db.query(`update pgfresh.worker set lease_until = 'infinity'`);
const { db, queue } = scene;

const end = (id: number, attempt: number) => [{ id, attempt, bytes: 0 }];
const turnBack = async (id: number, attempt: number, verdict: 'retry' | 'fail' | 'put_back' | 'lost') =>
  queue.turnBack(db, end(id, attempt), verdict, { error: 'test' });

/** Brings a new job into a state. */
const reach: Record<JobState, (key: string) => Promise<{ id: number; attempt: number }>> = {
  pending: async (key) => ({ id: (await queue.enqueue(db, 'quote', key)).jobId, attempt: 1 }),
  running: async (key) => {
    const { jobId } = await queue.enqueue(db, 'quote', key, { priority: 1000 });
    const job = await scene.claimOne();
    expect(job.id).toBe(jobId);
    return job;
  },
  retryable: async (key) => after(await reach.running(key), 'retry'),
  succeeded: async (key) => {
    const job = await reach.running(key);
    await queue.complete(db, end(job.id, job.attempt));
    return job;
  },
  failed: async (key) => after(await reach.running(key), 'fail'),
  cancelled: async (key) => {
    const job = await reach.pending(key);
    await db.query('select pgfresh.cancel_queue_jobs(array[$1::bigint])', [job.id]);
    return job;
  },
};

async function after(job: { id: number; attempt: number }, verdict: 'retry' | 'fail') {
  await turnBack(job.id, job.attempt, verdict);
  return job;
}

/** Lets an event happen to a job, as far as that can be tried. */
const happen: Record<JobEvent, (id: number, attempt: number) => Promise<unknown>> = {
  claimed: (id) =>
    db.transact('claim', async (tx) => {
      // Only this one is to be claimed.
      await tx.query(`update pgfresh.job set run_at = 'infinity', state = 'w' where id <> $1::bigint and state = 'r'`, [
        id,
      ]);
      await queue.claim(tx, { worker: 1, limit: 1 });
      await tx.query(`update pgfresh.job set state = 'r' where run_at = 'infinity'`);
    }),
  completed: (id, attempt) => queue.complete(db, end(id, attempt)),
  failed_transiently: (id, attempt) => turnBack(id, attempt, 'retry'),
  retries_used_up: async (id, attempt) => {
    await db.query('update pgfresh.job set retries = 3 where id = $1::bigint', [id]);
    return turnBack(id, attempt, 'retry');
  },
  failed_permanently: (id, attempt) => turnBack(id, attempt, 'fail'),
  put_back: (id, attempt) => turnBack(id, attempt, 'put_back'),
  lost: (id, attempt) => turnBack(id, attempt, 'lost'),
  lost_three_times: async (id, attempt) => {
    await db.query('update pgfresh.job set lost = 2 where id = $1::bigint', [id]);
    return turnBack(id, attempt, 'lost');
  },
  due: async () => {
    await clock.advance('2 minutes');
    await db.query('select pgfresh.promote_jobs(pgfresh.clock())');
  },
  cancelled: (id) => db.query('select pgfresh.cancel_queue_jobs(array[$1::bigint])', [id]),
};

const cells = jobStates.flatMap((state) => jobEvents.map((event) => [state, event] as const));

it.each(cells)('%s, %s', async (state, event) => {
  const job = await reach[state](`${state} ${event}`);
  expect(await scene.job(job.id)).toMatchObject({ status: state });
  await happen[event](job.id, job.attempt);
  // A retryable job whose time has come is pending to everybody but its retry count.
  const status = (await scene.job(job.id))?.['status'];
  expect(status === 'retryable' && event === 'due' ? 'not due' : status).toBe(transitions[state][event] ?? state);
  await db.query(`select pgfresh.cancel_queue_jobs(p_data_type => 'quote')`);
});
