import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import {
  jobEvents,
  jobStates,
  transitions,
  type ClaimedJob,
  type JobEvent,
  type JobState,
} from '../../src/queue/index.ts';
import { freezeClock } from '../harness/clock.ts';
import { QueueScene, unfinish, type failures } from './scene.ts';

const scene = await QueueScene.open();
const clock = await freezeClock(scene.db);
await scene.db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
const { db, queue } = scene;

type Token = Pick<ClaimedJob, 'id' | 'attempt' | 'request'>;
const complete = (token: Token) => queue.complete(db, [{ ...token, bytes: 0 }]);
const turnBack = (token: Token, how: (typeof failures)[number]) =>
  unfinish(queue, db, [{ ...token, bytes: 0 }], how, { error: 'test' });

/** Brings a new job into a state. */
const reach: Record<JobState, (key: string) => Promise<Token>> = {
  pending: async (key) => ({ id: (await queue.enqueue(db, 'quote', key)).jobId, attempt: 1, request: randomUUID() }),
  running: async (key) => {
    const { jobId } = await queue.enqueue(db, 'quote', key, { priority: 1000 });
    const job = await scene.claimOne();
    expect(job.id).toBe(jobId);
    return job;
  },
  retryable: async (key) => after(await reach.running(key), 'retry'),
  succeeded: async (key) => {
    const job = await reach.running(key);
    await complete(job);
    return job;
  },
  failed: async (key) => after(await reach.running(key), 'fail'),
  cancelled: async (key) => {
    const job = await reach.pending(key);
    await db.query('select pgfresh.cancel_queue_jobs(array[$1::bigint])', [job.id]);
    return job;
  },
};

async function after(job: Token, verdict: 'retry' | 'fail') {
  await turnBack(job, verdict);
  return job;
}

/** Lets an event happen to a job, as far as that can be tried. */
const happen: Record<JobEvent, (token: Token) => Promise<unknown>> = {
  claimed: ({ id }) =>
    db.transact('claim', async (tx) => {
      // Only this one is to be claimed.
      await tx.query(
        `update pgfresh_engine.job set run_at = 'infinity', state = 'w' where id <> $1::bigint and state = 'r'`,
        [id],
      );
      await queue.claim(tx, { worker: 1, limit: 1 });
      await tx.query(`update pgfresh_engine.job set state = 'r' where run_at = 'infinity'`);
    }),
  completed: complete,
  failed_transiently: (token) => turnBack(token, 'retry'),
  retries_used_up: async (token) => {
    await db.query('update pgfresh_engine.job set retries = 3 where id = $1::bigint', [token.id]);
    return turnBack(token, 'retry');
  },
  failed_permanently: (token) => turnBack(token, 'fail'),
  put_back: (token) => turnBack(token, 'put_back'),
  put_back_too_often: async (token) => {
    await db.query('update pgfresh_engine.job set put_backs = 5 where id = $1::bigint', [token.id]);
    return turnBack(token, 'put_back');
  },
  lost: (token) => turnBack(token, 'lost'),
  lost_three_times: async (token) => {
    await db.query('update pgfresh_engine.job set lost = 2 where id = $1::bigint', [token.id]);
    return turnBack(token, 'lost');
  },
  due: async () => {
    await clock.advance('2 minutes');
    // A claim of no source claims nothing, but makes jobs ready whose time has come.
    await db.query(`select pgfresh.get_queue_batch(1, '{}')`);
  },
  cancelled: ({ id }) => db.query('select pgfresh.cancel_queue_jobs(array[$1::bigint])', [id]),
};

const cells = jobStates.flatMap((state) => jobEvents.map((event) => [state, event] as const));

it.each(cells)('%s, %s', async (state, event) => {
  const job = await reach[state](`${state} ${event}`);
  expect(await scene.job(job.id)).toMatchObject({ status: state });
  await happen[event](job);
  // A retryable job whose time has come is pending to everybody but its retry count.
  const status = (await scene.job(job.id))?.['status'];
  expect(status === 'retryable' && event === 'due' ? 'not due' : status).toBe(transitions[state][event] ?? state);
  await db.query(`select pgfresh.cancel_queue_jobs(p_data_type => 'quote')`);
});
