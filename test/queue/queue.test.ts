import { beforeEach, describe, expect, it } from 'vitest';
import { freezeClock } from '../harness/clock.ts';
import { QueueScene } from './scene.ts';

const scene = await QueueScene.open();
const { db, queue } = scene;

beforeEach(async () => {
  await db.query(
    'truncate pgfresh.job, pgfresh.pairs, pgfresh.claim, pgfresh.history_succeeded, pgfresh.history_other, pgfresh.usage',
  );
});

const keysOf = (jobs: readonly { key: string }[]) => jobs.map((job) => job.key);

describe('enqueue', () => {
  it('opens one job a pair, however often it is asked for', async () => {
    const first = await queue.enqueue(db, 'quote', 'AAPL');
    const second = await queue.enqueue(db, 'quote', 'AAPL');
    expect([first.result, second.result]).toEqual(['queued', 'merged']);
    expect(second.jobId).toBe(first.jobId);
    expect(await scene.value('select count(*)::int from pgfresh.job')).toBe(1);
  });

  it('takes sets, in which a key may stand twice, and counts what came of them', async () => {
    await queue.enqueue(db, 'quote', 'B');
    expect(await queue.enqueueMany(db, 'quote', ['A', 'B', 'C', 'A'])).toEqual({
      queued: 2,
      merged: 1,
      running: 0,
      rerun: 0,
      busy: 0,
    });
    expect(await queue.enqueueMany(db, 'quote', [])).toMatchObject({ queued: 0 });
  });

  it('opens a new job once the last one has ended', async () => {
    const { jobId } = await queue.enqueue(db, 'quote', 'A');
    await scene.complete(await scene.claim());
    const again = await queue.enqueue(db, 'quote', 'A');
    expect(again.result).toBe('queued');
    expect(again.jobId).toBeGreaterThan(jobId);
  });

  it('is part of the transaction that it stands in', async () => {
    const work = db.transact('mine', async (tx) => {
      await queue.enqueueMany(tx, 'quote', ['A', 'B']);
      throw new Error('changed my mind');
    });
    await expect(work).rejects.toThrow('changed my mind');
    expect(await scene.value('select count(*)::int from pgfresh.pairs')).toBe(0);
    await db.transact('mine', (tx) => queue.enqueueMany(tx, 'quote', ['A', 'B']));
    expect(keysOf(await scene.claim())).toEqual(['A', 'B']);
  });

  it('carries metadata to the worker and into the history', async () => {
    const { jobId } = await queue.enqueue(db, 'quote', 'A', { metadata: { range: '1y' } });
    const jobs = await scene.claim();
    expect(jobs[0]!.metadata).toEqual({ range: '1y' });
    await scene.complete(jobs);
    expect(await scene.job(jobId)).toMatchObject({ metadata: { range: '1y' } });
  });

  it('raises the priority of a job that waits, and never lowers it', async () => {
    await queue.enqueueMany(db, 'quote', ['low', 'raised', 'high'], { priority: 1 });
    await queue.enqueue(db, 'quote', 'high', { priority: 300 });
    await queue.enqueue(db, 'quote', 'raised', { priority: 20 });
    await queue.enqueue(db, 'quote', 'raised', { priority: 2 });
    expect((await scene.claim()).map(({ key, priority }) => [key, priority])).toEqual([
      ['high', 300],
      ['raised', 20],
      ['low', 1],
    ]);
  });

  it('changes nothing of a running job, unless it is forced: then it runs again', async () => {
    await queue.enqueue(db, 'quote', 'A', { priority: 5, metadata: { of: 'first' } });
    const [running] = await scene.claim();
    expect((await queue.enqueue(db, 'quote', 'A', { priority: 50 })).result).toBe('running');
    expect((await queue.enqueue(db, 'quote', 'A', { force: true })).result).toBe('rerun');
    await scene.complete([running!]);
    const [again] = await scene.claim();
    expect(again).toMatchObject({ key: 'A', priority: 5, attempt: 1, metadata: { of: 'first' } });
    await scene.complete([again!]);
    expect(await scene.claim()).toEqual([]);
  });

  it('keeps the wish to run again when the running job fails for good', async () => {
    await queue.enqueue(db, 'quote', 'A');
    const running = await scene.claimOne();
    await queue.enqueue(db, 'quote', 'A', { force: true });
    await queue.turnBack(db, [{ ...running, bytes: 0 }], 'fail', { error: 'no' });
    expect(keysOf(await scene.claim())).toEqual(['A']);
  });

  it('can wait for its time, which somebody in a hurry brings forward', async () => {
    await queue.enqueue(db, 'quote', 'later', { runAt: new Date(Date.now() + 3_600_000) });
    expect(await scene.claim()).toEqual([]);
    await queue.enqueue(db, 'quote', 'later');
    expect(keysOf(await scene.claim())).toEqual(['later']);
  });
});

describe('claim', () => {
  it('goes by band, then by age; background work is last', async () => {
    for (const [key, priority] of [
      ['background', -1],
      ['one', 1],
      ['nobody', 0],
      ['many', 900],
      ['ten', 10],
      ['eleven', 11],
      ['old ten', 8],
    ] as const) {
      await queue.enqueue(db, 'quote', key, { priority });
    }
    expect(keysOf(await scene.claim({ limit: 4 }))).toEqual(['many', 'ten', 'eleven', 'old ten']);
    expect(keysOf(await scene.claim({ limit: 4 }))).toEqual(['one', 'nobody', 'background']);
  });

  it('goes by age within a band, whatever the source', async () => {
    await scene.source('second');
    await scene.type('rate', 'second');
    await queue.enqueue(db, 'rate', '1 rate', { priority: 4 });
    await queue.enqueue(db, 'quote', '2 quote', { priority: 7 });
    await queue.enqueue(db, 'rate', '3 rate', { priority: 5 });
    expect(keysOf(await scene.claim({ limit: 2 }))).toEqual(['1 rate', '2 quote']);
    expect(keysOf(await scene.claim({ limit: 2 }))).toEqual(['3 rate']);
  });

  it('leaves sources alone that are disabled or paused', async () => {
    await scene.source('slow');
    await scene.type('weather', 'slow');
    await queue.enqueue(db, 'quote', 'A');
    await queue.enqueue(db, 'weather', 'B', { priority: 99 });
    await db.query(`update pgfresh.sources set paused_until = pgfresh.clock() + interval '1 hour' where name = 'slow'`);
    expect(keysOf(await scene.claim())).toEqual(['A']);
    await db.query(`update pgfresh.sources set paused_until = null, enabled = false where name = 'slow'`);
    expect(await scene.claim()).toEqual([]);
    await db.query(`update pgfresh.sources set enabled = true where name = 'slow'`);
    expect(keysOf(await scene.claim())).toEqual(['B']);
  });

  it('can be limited to sources, to types and to a size', async () => {
    const rates = await scene.source('rates');
    const bond = await scene.type('bond', 'rates', 5_000);
    const note = await scene.type('note', 'rates', 10);
    await queue.enqueue(db, 'quote', 'q');
    await queue.enqueue(db, 'bond', 'b');
    await queue.enqueue(db, 'note', 'n');
    expect(keysOf(await scene.claim({ sources: [rates], maxBytes: 100 }))).toEqual(['n']);
    expect(await scene.claim({ types: [note] })).toEqual([]);
    expect(keysOf(await scene.claim({ types: [bond] }))).toEqual(['b']);
    expect(keysOf(await scene.claim())).toEqual(['q']);
  });

  it('wakes a worker that waits, and only then', async () => {
    const idle = () => scene.value<boolean>('select bool_or(idle) from pgfresh.worker');
    await scene.claim();
    expect(await idle()).toBe(true);
    await queue.enqueueMany(db, 'quote', ['A', 'B']);
    await scene.claim({ limit: 1 });
    expect(await idle()).toBe(false);
    await scene.claim({ limit: 2 });
    expect(await idle()).toBe(true);
  });

  it('is answered as JSON to those who speak only SQL', async () => {
    await queue.enqueueMany(db, 'quote', ['A', 'B'], { priority: 3 });
    const batch = await scene.value<{ id: number; attempt: number; key: string }[]>('pgfresh.get_queue_batch(1)');
    expect(batch).toMatchObject([{ key: 'A', data_type: 'quote', priority: 3, attempt: 1, estimated_size: 0 }]);
    expect(await scene.value('pgfresh.complete_queue_job($1::bigint, 120, $2::int)', [batch[0]!.id, 1])).toBe(true);
    expect(await scene.value('pgfresh.complete_queue_job($1::bigint, 120, $2::int)', [batch[0]!.id, 1])).toBe(false);
    expect(await scene.value('pgfresh.claim_next_pending_job()')).toMatchObject({ key: 'B' });
    expect(await scene.value('pgfresh.claim_next_pending_job()')).toBeNull();
  });
});

describe('a refusal', () => {
  it.each([
    ['PGF_KEY_INVALID', () => queue.enqueue(db, 'quote', '')],
    ['PGF_TYPE_UNKNOWN', () => queue.enqueue(db, 'qoute', 'A')],
    ['PGF_ARGUMENT_INVALID', () => queue.enqueue(db, 'quote', 'A', { priority: -2 })],
    ['PGF_SOURCE_UNKNOWN', () => scene.value(`pgfresh.is_quota_exceeded('nobody')`)],
    ['PGF_LEASE_LOST', () => queue.claim(db, { worker: 999, limit: 1 })],
  ])('is the coded error %s, inside and outside of a transaction', async (code, act) => {
    await expect(act()).rejects.toMatchObject({ code, next: expect.stringMatching(/\.$/) as string });
  });
});

describe('the end', () => {
  it('is in the history with what it took, and the pair remembers it', async () => {
    const { jobId } = await queue.enqueue(db, 'quote', 'A', { priority: 2 });
    const [job] = await scene.claim();
    await queue.complete(db, [{ id: job!.id, attempt: job!.attempt, bytes: 321, fetchMs: 12 }], 'unchanged');
    expect(await scene.job(jobId)).toMatchObject({
      status: 'succeeded',
      outcome: 'unchanged',
      data_size_bytes: 321,
      attempts: 1,
      retry_count: 0,
    });
    expect(await db.query('select job_id, last_job, ok_job, outcome, fails from pgfresh.pairs')).toEqual([
      { job_id: null, last_job: jobId, ok_job: jobId, outcome: 'unchanged', fails: 0 },
    ]);
  });

  it('has no effect for an attempt that is not running any more', async () => {
    await queue.enqueue(db, 'quote', 'A');
    const first = await scene.claimOne();
    await queue.turnBack(db, [{ ...first, bytes: 0 }], 'put_back');
    expect(await scene.complete([first])).toEqual([]);
    const second = await scene.claimOne();
    expect([second.id, second.attempt]).toEqual([first.id, first.attempt + 1]);
    expect(await scene.complete([first])).toEqual([]);
    expect(await queue.turnBack(db, [{ ...first, bytes: 0 }], 'fail')).toEqual([]);
    expect(await scene.complete([second, first])).toEqual([second.id]);
  });

  it('of several data types in one call, or of one job twice, is refused, and nothing is ended', async () => {
    await scene.type('other', 'market');
    await queue.enqueue(db, 'quote', 'A');
    await queue.enqueue(db, 'other', 'A');
    const jobs = await scene.claim();
    await expect(scene.complete(jobs)).rejects.toThrow('several data types');
    await expect(scene.complete([jobs[0]!, jobs[0]!])).rejects.toThrow('one job twice');
    expect(await scene.value(`select count(*)::int from pgfresh.open_jobs where status = 'running'`)).toBe(2);
  });

  it('by a deadlock of the database is put back at once and counts nothing', async () => {
    await queue.enqueue(db, 'quote', 'A');
    const job = await scene.claimOne();
    expect(await scene.value('pgfresh.reset_job_immediate($1::bigint)', [job.id])).toBe(true);
    expect(await scene.job(job.id)).toMatchObject({ status: 'pending', retry_count: 0 });
    expect(await scene.value('pgfresh.reset_job_immediate($1::bigint)', [job.id])).toBe(false);
  });
});

describe('a failure', () => {
  it('that is transient waits longer each time, then is a dead letter that can be redriven once', async () => {
    const clock = await freezeClock(db);
    await db.query(`update pgfresh.worker set lease_until = 'infinity'`);
    const { jobId } = await queue.enqueue(db, 'quote', 'A', { priority: 1, metadata: { a: 1 } });
    for (const most of [15, 30, 60]) {
      const job = await scene.claimOne();
      const [back] = await queue.turnBack(db, [{ ...job, bytes: 0 }], 'retry', { error: `try ${job.attempt}` });
      const seconds = (back!.nextRetryAt!.getTime() - (await scene.value<Date>('pgfresh.clock()')).getTime()) / 1000;
      expect(back!.status).toBe('retryable');
      expect(seconds).toBeGreaterThanOrEqual(0);
      expect(seconds).toBeLessThanOrEqual(most);
      await clock.advance(`${most} seconds`);
    }
    const last = await scene.claimOne();
    expect(last.retries).toBe(3);
    expect(await queue.turnBack(db, [{ ...last, bytes: 7 }], 'retry', { error: 'enough' })).toMatchObject([
      { status: 'failed' },
    ]);
    expect(await db.query('select id, key, error_message, attempts, retry_count from pgfresh.failed_jobs')).toEqual([
      { id: jobId, key: 'A', error_message: 'enough', attempts: 4, retry_count: 3 },
    ]);
    expect(await scene.value(`pgfresh.retry_failed_jobs(p_data_type => 'quote', p_dry_run => true)`)).toBe(1);
    expect(await scene.claim()).toEqual([]);
    expect(await scene.value(`pgfresh.retry_failed_jobs(p_data_type => 'quote')`)).toBe(1);
    expect(await scene.claim()).toMatchObject([{ key: 'A', retries: 0, metadata: { a: 1 } }]);
    expect(await scene.value(`pgfresh.retry_failed_jobs(p_data_type => 'quote')`)).toBe(0);
  });

  it('is spread over the whole wait, at most 24 hours', async () => {
    const delays = await db.query<{ seconds: number }>(
      'select extract(epoch from pgfresh.retry_delay(1, 0))::float8 as seconds from generate_series(1, 1000)',
    );
    const sorted = delays.map(({ seconds }) => seconds).toSorted((a, b) => a - b);
    expect(sorted[0]).toBeLessThan(12);
    expect(sorted.at(-1)).toBeGreaterThan(108);
    expect(sorted.at(-1)).toBeLessThanOrEqual(120);
    expect(
      await scene.value<boolean>(
        `select max(pgfresh.retry_delay(1000, 0)) between '20 hours' and '24 hours' from generate_series(1, 200)`,
      ),
    ).toBe(true);
  });

  it('that is permanent ends at once', async () => {
    await queue.enqueue(db, 'quote', 'A');
    const job = await scene.claimOne();
    expect(
      await scene.value(`pgfresh.fail_queue_job($1::bigint, 'no such key', p_permanent => true)`, [job.id]),
    ).toMatchObject({ status: 'failed' });
    expect(await db.query('select fails, outcome, job_id from pgfresh.pairs')).toEqual([
      { fails: 1, outcome: 'failed', job_id: null },
    ]);
  });
});

describe('cancelling', () => {
  it('counts first, then ends what matches, running jobs too', async () => {
    await queue.enqueueMany(db, 'quote', ['A', 'B', 'C']);
    const running = await scene.claimOne();
    expect(await scene.value(`pgfresh.cancel_queue_jobs(p_status => 'pending', p_dry_run => true)`)).toBe(2);
    expect(await scene.value(`pgfresh.cancel_queue_jobs(p_key => 'B')`)).toBe(1);
    expect(await scene.value(`pgfresh.cancel_queue_jobs(p_source => 'market')`)).toBe(2);
    expect(await scene.complete([running])).toEqual([]);
    expect(await scene.value(`select count(*)::int from pgfresh.api_call_queue where status = 'cancelled'`)).toBe(3);
    expect(await queue.enqueueMany(db, 'quote', ['A', 'B', 'C'])).toMatchObject({ queued: 3 });
  });
});
