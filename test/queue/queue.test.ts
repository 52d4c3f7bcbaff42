import pg from 'pg';
import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { Listener } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { Queue } from '../../src/queue/index.ts';
import { freezeClock } from '../harness/clock.ts';
import { QueueScene } from './scene.ts';

const scene = await QueueScene.open();
const { db, queue } = scene;

beforeEach(async () => {
  await db.query(
    'truncate pgfresh_engine.job, pgfresh_engine.pairs, pgfresh_engine.claim, pgfresh_engine.history_succeeded, pgfresh_engine.history_other, pgfresh_engine.usage',
  );
});

const keysOf = (jobs: readonly { key: string }[]) => jobs.map((job) => job.key);

describe('enqueue', () => {
  it('opens one job a pair, however often it is asked for', async () => {
    const first = await queue.enqueue(db, 'quote', 'AAPL');
    const second = await queue.enqueue(db, 'quote', 'AAPL');
    expect([first.result, second.result]).toEqual(['queued', 'merged']);
    expect(second.jobId).toBe(first.jobId);
    expect(await scene.value('select count(*)::int from pgfresh_engine.job')).toBe(1);
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
    expect(await scene.value('select count(*)::int from pgfresh_engine.pairs')).toBe(0);
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

  it('truth 20: ends the wait of a job that failed by force, and not without', async () => {
    await queue.enqueue(db, 'quote', 'FAILED');
    const { id } = await scene.claimOne();
    await db.query(`select pgfresh.fail_queue_job($1::bigint, 'status 503')`, [id]);
    expect((await queue.enqueue(db, 'quote', 'FAILED')).result).toBe('merged');
    expect(await scene.claim()).toEqual([]);
    expect((await queue.enqueue(db, 'quote', 'FAILED', { force: true })).result).toBe('merged');
    const again = await scene.claimOne();
    expect(again).toMatchObject({ id, key: 'FAILED', attempt: 2 });
    await db.query(`select pgfresh.fail_queue_job($1::bigint, 'status 503')`, [id]);
    // What a viewer asks for ends the wait too, and is not run twice.
    const refresh = () => scene.value<{ result: string }>(`pgfresh_engine.refresh_pair('quote', 'FAILED')`);
    expect((await refresh()).result).toBe('merged');
    expect(await scene.claimOne()).toMatchObject({ id, attempt: 3 });
    expect((await refresh()).result).toBe('running');
    await db.query(`select pgfresh.complete_queue_job($1::bigint, 0)`, [id]);
    expect(await scene.claim()).toEqual([]);
  });

  it('truth 20: a refresh that is forced while it runs does not wait when that attempt fails', async () => {
    await queue.enqueue(db, 'quote', 'FORCED');
    const { id } = await scene.claimOne();
    expect((await queue.enqueue(db, 'quote', 'FORCED', { force: true })).result).toBe('rerun');
    await db.query(`select pgfresh.fail_queue_job($1::bigint, 'status 503')`, [id]);
    expect(await scene.claimOne()).toMatchObject({ id, attempt: 2 });
    await db.query(`select pgfresh.fail_queue_job($1::bigint, 'status 503')`, [id]);
    expect(await scene.claim()).toEqual([]);
    await db.query(`select pgfresh.cancel_queue_jobs(p_data_type => 'quote')`);
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
    await queue.fail(db, [{ ...running, bytes: 0 }], { permanent: true, error: 'no' });
    expect(keysOf(await scene.claim())).toEqual(['A']);
  });

  it('forgets the wish to run again when the running job is cancelled', async () => {
    await queue.enqueue(db, 'quote', 'A');
    await scene.claimOne();
    await queue.enqueue(db, 'quote', 'A', { force: true });
    await db.query(`select pgfresh.cancel_queue_jobs(p_key => 'A')`);
    expect(await scene.value('select count(*)::int from pgfresh_engine.open_jobs')).toBe(0);
  });

  it('can wait for its time, which somebody in a hurry brings forward', async () => {
    await queue.enqueue(db, 'quote', 'later', { runAt: new Date(Date.now() + 3_600_000) });
    expect(await scene.claim()).toEqual([]);
    await queue.enqueue(db, 'quote', 'later');
    expect(keysOf(await scene.claim())).toEqual(['later']);
  });

  it('is ready when its time has come, together with others', async () => {
    await queue.enqueueMany(db, 'quote', ['A', 'B', 'C'], { runAt: new Date(Date.now() + 3_600_000) });
    await db.query(`update pgfresh_engine.job set run_at = pgfresh.clock() where key <> 'C'`);
    expect(keysOf(await scene.claim())).toEqual(['A', 'B']);
  });

  it('of a pair that waits takes over an earlier time and nothing else but a higher priority', async () => {
    const [early, late] = [30, 60].map((minutes) => new Date(Date.now() + minutes * 60_000));
    const mine = { priority: 9, estimatedBytes: 700, metadata: { of: 'first' } };
    const theirs = { priority: 2, estimatedBytes: 5, metadata: { of: 'second' } };
    const { jobId } = await queue.enqueue(db, 'quote', 'A', { ...mine, runAt: late! });
    for (const runAt of [early!, late!]) {
      await queue.enqueue(db, 'quote', 'A', { ...theirs, runAt });
      expect(await scene.job(jobId)).toMatchObject({ status: 'pending', next_retry_at: early, priority: 9 });
    }
    await queue.enqueue(db, 'quote', 'A', { ...theirs, priority: 20 });
    expect(await scene.claim()).toMatchObject([{ ...mine, priority: 20 }]);
  });

  it('leaves a job that has failed before to its wait, however many look', async () => {
    const { jobId } = await queue.enqueue(db, 'quote', 'A', { priority: 1 });
    const [back] = await queue.fail(db, [{ ...(await scene.claimOne()), bytes: 0 }]);
    expect((await queue.enqueue(db, 'quote', 'A', { priority: 50 })).result).toBe('merged');
    expect(await scene.job(jobId)).toMatchObject({
      status: 'retryable',
      priority: 50,
      next_retry_at: back!.nextRetryAt,
    });
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
    expect(keysOf(await scene.claim({ limit: 3 }))).toEqual(['many', 'ten', 'eleven']);
    expect(keysOf(await scene.claim({ limit: 3 }))).toEqual(['old ten', 'one', 'nobody']);
    expect(keysOf(await scene.claim({ limit: 3 }))).toEqual(['background']);
  });

  it('has one last band for 524,288 viewers and more', async () => {
    await queue.enqueue(db, 'quote', 'fewer', { priority: 524_287 });
    await queue.enqueue(db, 'quote', 'enough', { priority: 524_288 });
    await queue.enqueue(db, 'quote', 'everybody', { priority: 2_147_483_647 });
    for (const key of ['enough', 'everybody', 'fewer']) expect((await scene.claimOne()).key).toBe(key);
  });

  it('goes by age within a band, whatever the source', async () => {
    await scene.source('second');
    await scene.type('rate', 'second');
    await queue.enqueue(db, 'quote', '0 lower', { priority: 3 });
    await queue.enqueue(db, 'rate', '1 rate', { priority: 4 });
    await queue.enqueue(db, 'rate', '2 rate', { priority: 5 });
    await queue.enqueue(db, 'quote', '3 quote', { priority: 7 });
    expect(keysOf(await scene.claim({ limit: 2 }))).toEqual(['1 rate', '2 rate']);
    expect(keysOf(await scene.claim({ limit: 2 }))).toEqual(['3 quote', '0 lower']);
  });

  it('leaves sources alone that are disabled or paused', async () => {
    await scene.source('slow');
    await scene.type('weather', 'slow');
    await queue.enqueue(db, 'quote', 'A');
    await queue.enqueue(db, 'weather', 'B', { priority: 99 });
    await db.query(`update pgfresh.sources set paused_until = pgfresh.clock() + interval '1 hour' where name = 'slow'`);
    expect(keysOf(await scene.claim())).toEqual(['A']);
    await db.query(`update pgfresh.sources set paused_until = pgfresh.clock(), enabled = false where name = 'slow'`);
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
    expect(await scene.claim({ sources: [rates], maxBytes: 9 })).toEqual([]);
    expect(await scene.claim({ maxBytes: 9, types: [bond, note] })).toEqual([]);
    expect(keysOf(await scene.claim({ sources: [rates], maxBytes: 100 }))).toEqual(['n']);
    for (const where of [{}, { sources: [rates] }]) expect(await scene.claim({ ...where, types: [note] })).toEqual([]);
    expect(keysOf(await scene.claim({ types: [bond] }))).toEqual(['b']);
    expect(keysOf(await scene.claim())).toEqual(['q']);
  });

  it('can be limited by those who speak only SQL too, by names', async () => {
    await scene.source('funds');
    await scene.type('fund', 'funds', 5_000);
    await scene.type('index', 'funds', 10);
    for (const type of ['quote', 'fund', 'index']) await queue.enqueue(db, type, `a ${type}`);
    expect(await scene.value(`pgfresh.get_queue_batch(10, null, '{index}', 9)`)).toEqual([]);
    expect(await scene.value(`pgfresh.get_queue_batch(10, null, '{index}')`)).toMatchObject([{ key: 'a index' }]);
    expect(await scene.value(`pgfresh.get_queue_batch(10, '{funds}', null, 4999)`)).toEqual([]);
    expect(await scene.value(`pgfresh.claim_next_pending_job(p_data_types => '{index}')`)).toBeNull();
    expect(await scene.value(`pgfresh.claim_next_pending_job(p_sources => '{funds}')`)).toMatchObject({
      key: 'a fund',
    });
    expect(await scene.value(`pgfresh.claim_next_pending_job(p_sources => '{funds}')`)).toBeNull();
  });

  it('wakes a worker that waits, and only then', async () => {
    const heard: string[] = [];
    let fence = Promise.withResolvers<void>();
    const onNotification = (payload: string) => (payload === 'fence' ? fence.resolve() : void heard.push(payload));
    const listener = new Listener({ url: scene.url, channel: 'pgfresh_job', events: new Events(), onNotification });
    onTestFinished(() => listener.stop());
    await listener.start();
    /** How often somebody was woken since the last time. What was said before the fence is heard before it. */
    const woken = async () => {
      fence = Promise.withResolvers();
      await db.query(`select pg_notify('pgfresh_job', 'fence')`);
      await fence.promise;
      return heard.splice(0).length;
    };
    await scene.claim();
    await queue.enqueue(db, 'quote', 'later', { runAt: new Date(Date.now() + 3_600_000) });
    expect(await woken()).toBe(0);
    await queue.enqueueMany(db, 'quote', ['A', 'B']);
    expect(await woken()).toBe(1);
    const first = await scene.claimOne();
    await queue.enqueue(db, 'quote', 'C');
    await queue.putBack(db, [{ ...first, bytes: 0 }]);
    expect(await woken()).toBe(0);
    const [again] = await scene.claim();
    await queue.putBack(db, [{ ...again!, bytes: 0 }]);
    expect(await woken()).toBe(1);
  });

  it('sound 10: wakes a worker for a viewed pair that is due, also if it was asked for later', async () => {
    const heard: string[] = [];
    const fence = Promise.withResolvers<void>();
    const onNotification = (payload: string) => (payload === 'fence' ? fence.resolve() : void heard.push(payload));
    const listener = new Listener({ url: scene.url, channel: 'pgfresh_job', events: new Events(), onNotification });
    onTestFinished(() => listener.stop());
    await listener.start();
    await db.query(
      `insert into pgfresh_engine.pairs (type_id, key, demanded, viewers, due_at)
       select type_id, 'due', true, 1, pgfresh.clock() from pgfresh.data_type_registry where data_type = 'quote'`,
    );
    await scene.claim();
    await queue.enqueue(db, 'quote', 'due', { runAt: new Date(Date.now() + 3_600_000) });
    await db.query(`select pg_notify('pgfresh_job', 'fence')`);
    await fence.promise;
    expect(heard).toHaveLength(1);
    expect(keysOf(await scene.claim())).toEqual(['due']);
  });

  it.each([true, false])(
    'begins at the floors that it is told, each for its data type and lane (alone: %s)',
    async (alone) => {
      const source = await scene.value<number>(`select id from pgfresh.sources where name = 'market'`);
      await queue.enqueueMany(db, 'quote', ['behind', 'viewed'], { priority: 0 });
      await queue.enqueue(db, 'quote', 'viewed', { priority: 1 });
      const { jobId } = await queue.enqueue(db, 'quote', 'ahead');
      const type = await scene.value<number>(
        `select type_id from pgfresh.data_type_registry where data_type = 'quote'`,
      );
      const from = await db.query<{ key: string }>(
        `select key from pgfresh_engine.claim_jobs(null, gen_random_uuid(), 10, $1::int[], null, null, array[$2::int], array[52::smallint], array[$3::bigint])`,
        [alone ? [source] : null, type, jobId],
      );
      expect(keysOf(from).toSorted()).toEqual(['ahead', 'viewed']);
      expect(keysOf(await scene.claim())).toEqual(['behind']);
    },
  );

  it('remembers how far it came where looking at everything is dear, and looks from the beginning after a while', async () => {
    let now = 0;
    const remembers = new Queue(() => (now += 50));
    const worker = await scene.register();
    const claimOne = async () => (await remembers.claim(db, { worker, limit: 1 })).jobs[0];
    await queue.enqueueMany(db, 'quote', ['A', 'B']);
    const first = await claimOne();
    await queue.putBack(db, [{ ...first!, bytes: 0 }]);
    expect(await claimOne()).toMatchObject({ key: 'B' });
    expect(await claimOne()).toBeUndefined();
    now += 1_000;
    expect(await claimOne()).toMatchObject({ key: 'A', attempt: 2 });
  });

  it('remembers it for each filter apart', async () => {
    const remembers = new Queue(() => 0);
    const worker = await scene.register();
    const tick = await scene.type('tick', 'market');
    await queue.enqueue(db, 'quote', '1 quote');
    await queue.enqueue(db, 'tick', '2 tick');
    await queue.enqueue(db, 'quote', '3 quote');
    expect((await remembers.claim(db, { worker, limit: 1, types: [tick] })).jobs).toMatchObject([{ key: '2 tick' }]);
    expect((await remembers.claim(db, { worker, limit: 1 })).jobs).toMatchObject([{ key: '1 quote' }]);
  });

  it('waits for the disk unless it is alone and nothing of it is metered', async () => {
    await scene.source('paid', { quotaBytes: 1_000_000 });
    await scene.type('paid', 'paid', 10);
    const waits = (type: string, alone: boolean) =>
      db.transact('claim', async (tx) => {
        await tx.query('set local synchronous_commit = on');
        await queue.enqueue(tx, type, `${type} ${alone}`);
        const { jobs } = await new Queue().claim(tx, { worker: await scene.register(), limit: 1, alone });
        expect(jobs).toHaveLength(1);
        const [row] = await tx.query<{ waits: string }>(`select current_setting('synchronous_commit') as waits`);
        return row!.waits;
      });
    expect(await waits('quote', true)).toBe('off');
    expect(await waits('quote', false)).toBe('on');
    expect(await waits('paid', true)).toBe('on');
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
    await scene.register();
    const { jobId: failed } = await queue.enqueue(db, 'quote', 'A');
    await queue.fail(db, [{ ...(await scene.claimOne()), bytes: 0 }], {
      permanent: true,
      outcome: 'refused',
      error: 'no',
    });
    const pairs = 'select job_id, last_job, ok_job, ok_at, confirmed_at, outcome, fails from pgfresh_engine.pairs';
    expect(await db.query(pairs)).toEqual([
      { job_id: null, last_job: failed, ok_job: null, ok_at: null, confirmed_at: null, outcome: 'refused', fails: 1 },
    ]);

    const { jobId } = await queue.enqueue(db, 'quote', 'A', { priority: 2 });
    const [job] = await scene.claim();
    const { created_at, processed_at } = (await scene.job(jobId))!;
    const times = { fetchMs: 12, validateMs: 3, commitMs: 4 };
    const token = { id: job!.id, attempt: job!.attempt, request: job!.request };
    await queue.complete(db, [{ ...token, bytes: 321, calls: 2, outcome: 'unchanged', ...times }]);
    const ended = (await scene.job(jobId))!;
    expect(ended).toMatchObject({
      status: 'succeeded',
      outcome: 'unchanged',
      data_size_bytes: 321,
      attempts: 1,
      retry_count: 0,
      locked_by: 'test',
      created_at,
      processed_at,
    });
    const at = ended['completed_at'];
    expect(Number(at)).toBeGreaterThanOrEqual(Number(processed_at));
    expect(
      await db.query('select calls, fetch_ms, validate_ms, commit_ms from pgfresh_engine.history_succeeded'),
    ).toEqual([{ calls: 2, fetch_ms: 12, validate_ms: 3, commit_ms: 4 }]);
    expect(await db.query(pairs)).toEqual([
      { job_id: null, last_job: jobId, ok_job: jobId, ok_at: at, confirmed_at: at, outcome: 'unchanged', fails: 0 },
    ]);
  });

  it('of several in one call has an outcome for each, and each says when its pair is looked at again', async () => {
    await db.query(`update pgfresh.data_type_registry set empty_ttl = '1 day' where data_type = 'quote'`);
    await queue.enqueueMany(db, 'quote', ['A', 'B', 'C']);
    await db.query('update pgfresh_engine.pairs set demanded = true');
    const outcomes: Readonly<Record<string, string>> = { A: 'empty', B: 'unchanged' };
    const ends = (await scene.claim()).map(({ id, attempt, request, key }) => {
      const outcome = outcomes[key];
      return { id, attempt, request, bytes: 10, ...(outcome === undefined ? {} : { outcome }) };
    });
    expect(await queue.complete(db, ends)).toHaveLength(3);
    const pairs = `select key, outcome, next_ask_at is not null as held, extract(epoch from due_at - ok_at)::int as due from pgfresh_engine.pairs order by key`;
    // The next tick looks at the rows of which nobody said how old they are.
    expect(await db.query(pairs)).toEqual([
      { key: 'A', outcome: 'empty', held: true, due: 86_400 },
      { key: 'B', outcome: 'unchanged', held: false, due: 0 },
      { key: 'C', outcome: 'fresh', held: false, due: 0 },
    ]);
    expect(
      await scene.value(`select array_agg(key || ' ' || outcome order by key) from pgfresh_engine.history_succeeded`),
    ).toEqual(['A empty', 'B unchanged', 'C fresh']);
    await db.query(`update pgfresh.data_type_registry set empty_ttl = null where data_type = 'quote'`);
  });

  it('that is a failure is in the history with its calls and times, too', async () => {
    await queue.enqueue(db, 'quote', 'A');
    const job = await scene.claimOne();
    const measured = { bytes: 7, calls: 3, fetchMs: 20, validateMs: 2 };
    await queue.fail(db, [{ ...job, ...measured }], { permanent: true, outcome: 'schema', error: 'no' });
    expect(
      await db.query('select bytes, calls, fetch_ms, validate_ms, outcome from pgfresh_engine.history_other'),
    ).toEqual([{ bytes: 7, calls: 3, fetch_ms: 20, validate_ms: 2, outcome: 'schema' }]);
  });

  it('has no effect for an attempt that is not running any more', async () => {
    await queue.enqueue(db, 'quote', 'A');
    const first = await scene.claimOne();
    await queue.putBack(db, [{ ...first, bytes: 0 }]);
    expect(await scene.complete([first])).toEqual([]);
    const second = await scene.claimOne();
    expect([second.id, second.attempt]).toEqual([first.id, first.attempt + 1]);
    expect(await scene.complete([first])).toEqual([]);
    expect(await queue.fail(db, [{ ...first, bytes: 0 }], { permanent: true })).toEqual([]);
    expect(await scene.complete([second, first])).toEqual([second.id]);
  });

  it('of several data types in one call, or of one job twice, is refused, and nothing is ended', async () => {
    await scene.type('other', 'market');
    await queue.enqueue(db, 'quote', 'A');
    await queue.enqueue(db, 'other', 'A');
    const jobs = await scene.claim();
    await expect(scene.complete(jobs)).rejects.toThrow('several data types');
    await expect(scene.complete([jobs[0]!, jobs[0]!])).rejects.toThrow('one job twice');
    expect(await scene.value(`select count(*)::int from pgfresh_engine.open_jobs where status = 'running'`)).toBe(2);
  });

  it('by a deadlock of the database is put back at once and counts nothing', async () => {
    await queue.enqueue(db, 'quote', 'A');
    const job = await scene.claimOne();
    expect(await scene.value('pgfresh.reset_job_immediate($1::bigint)', [job.id])).toBe(true);
    expect(await scene.job(job.id)).toMatchObject({ status: 'pending', retry_count: 0 });
    expect(await scene.value('select lost from pgfresh_engine.open_jobs')).toBe(0);
    expect(await scene.value('pgfresh.reset_job_immediate($1::bigint)', [job.id])).toBe(false);
  });
});

describe('a failure', () => {
  it('that is transient waits longer each time, then is a dead letter that can be redriven once', async () => {
    const clock = await freezeClock(db);
    await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
    const { jobId } = await queue.enqueue(db, 'quote', 'A', { priority: 1, metadata: { a: 1 } });
    for (const most of [15, 30, 60]) {
      const job = await scene.claimOne();
      const [back] = await queue.fail(db, [{ ...job, bytes: 0 }], { error: `try ${job.attempt}` });
      const seconds = (back!.nextRetryAt!.getTime() - (await scene.value<Date>('pgfresh.clock()')).getTime()) / 1000;
      expect(back!.status).toBe('retryable');
      expect(seconds).toBeGreaterThanOrEqual(0);
      expect(seconds).toBeLessThanOrEqual(most);
      await clock.advance(`${most} seconds`);
    }
    const last = await scene.claimOne();
    expect(last.retries).toBe(3);
    expect(await queue.fail(db, [{ ...last, bytes: 7 }], { error: 'enough' })).toMatchObject([{ status: 'failed' }]);
    expect(await db.query('select id, key, error_message, attempts, retry_count from pgfresh.failed_jobs')).toEqual([
      { id: jobId, key: 'A', error_message: 'enough', attempts: 4, retry_count: 3 },
    ]);
    expect(await scene.value(`pgfresh.retry_failed_jobs(p_data_type => 'quote', p_dry_run => true)`)).toBe(1);
    expect(await scene.claim()).toEqual([]);
    expect(await scene.value(`pgfresh.retry_failed_jobs(p_data_type => 'quote')`)).toBe(1);
    expect(await scene.claim()).toMatchObject([{ key: 'A', retries: 0, metadata: { a: 1 } }]);
    expect(await scene.value(`pgfresh.retry_failed_jobs(p_data_type => 'quote')`)).toBe(0);
  });

  it.each([
    { retries: 0, priority: 1, most: 15 },
    { retries: 3, priority: 1, most: 120 },
    { retries: 0, priority: 0, most: 60 },
    { retries: 1, priority: -1, most: 120 },
    { retries: 3, priority: -1, most: 480 },
    { retries: 100, priority: 1, most: 86_400 },
    { retries: 100, priority: 0, most: 86_400 },
  ])(
    'number $retries is spread over the whole wait: $most seconds with priority $priority',
    async ({ retries, priority, most }) => {
      const delays = await db.query<{ seconds: number }>(
        `select extract(epoch from (pgfresh_engine.decide_end(
           jsonb_populate_record(null::pgfresh_engine.job_end, $1::jsonb), pgfresh.clock(), false
         )).next_at - pgfresh.clock())::float8 as seconds from generate_series(1, 1000)`,
        [JSON.stringify({ retries, max_retries: 1000, priority, permanent: false, rerun: false })],
      );
      const sorted = delays.map(({ seconds }) => seconds).toSorted((a, b) => a - b);
      expect(sorted[0]).toBeLessThan(0.1 * most);
      expect(sorted.at(-1)).toBeGreaterThan(0.9 * most);
      expect(sorted.at(-1)).toBeLessThanOrEqual(most);
    },
  );

  it('is final after as many retries as its data type allows', async () => {
    await scene.type('fragile', 'market');
    await db.query(`update pgfresh.data_type_registry set max_retries = 1 where data_type = 'fragile'`);
    await queue.enqueue(db, 'fragile', 'A');
    const fail = async () =>
      scene.value(`pgfresh.fail_queue_job($1::bigint, 'down', p_outcome => 'timeout')`, [(await scene.claimOne()).id]);
    expect(await fail()).toMatchObject({ status: 'retryable' });
    await db.query(`update pgfresh_engine.job set run_at = pgfresh.clock()`);
    expect(await fail()).toMatchObject({ status: 'failed' });
    expect(await db.query('select outcome, retry_count from pgfresh.failed_jobs')).toEqual([
      { outcome: 'timeout', retry_count: 1 },
    ]);
  });

  it('keeps its last error until there is another one', async () => {
    const { jobId } = await queue.enqueue(db, 'quote', 'A');
    await queue.fail(db, [{ ...(await scene.claimOne()), bytes: 0 }], { error: 'down' });
    await db.query('update pgfresh_engine.job set run_at = pgfresh.clock()');
    await queue.putBack(db, [{ ...(await scene.claimOne()), bytes: 0 }]);
    expect(await scene.job(jobId)).toMatchObject({ status: 'pending', error_message: 'down' });
    await queue.fail(db, [{ ...(await scene.claimOne()), bytes: 0 }], { permanent: true });
    expect(await scene.job(jobId)).toMatchObject({ status: 'failed', error_message: 'down' });
  });

  it('that is permanent ends at once', async () => {
    await queue.enqueue(db, 'quote', 'A');
    const job = await scene.claimOne();
    expect(
      await scene.value(`pgfresh.fail_queue_job($1::bigint, 'no such key', p_permanent => true)`, [job.id]),
    ).toMatchObject({ status: 'failed' });
    expect(await db.query('select fails, outcome, job_id from pgfresh_engine.pairs')).toEqual([
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
    expect(await db.query('select distinct outcome, fails from pgfresh_engine.pairs')).toEqual([
      { outcome: 'cancelled', fails: 0 },
    ]);
    expect(await queue.enqueueMany(db, 'quote', ['A', 'B', 'C'])).toMatchObject({ queued: 3 });
  });
});

describe('by their ids, data type, source, state, key and time', () => {
  beforeAll(async () => {
    await scene.source('exchange');
    await scene.type('trade', 'exchange');
  });

  it('open jobs are cancelled, and no others', async () => {
    const { jobId } = await queue.enqueue(db, 'quote', 'A');
    await queue.enqueue(db, 'quote', 'B');
    await queue.enqueue(db, 'trade', 'A');
    const cancel = (filter: string, values: number[] = []) =>
      scene.value<number>(`pgfresh.cancel_queue_jobs(${filter})`, values);
    expect(await cancel('array[$1::bigint], p_dry_run => true', [jobId])).toBe(1);
    expect(await cancel(`p_data_type => 'quote', p_dry_run => true`)).toBe(2);
    expect(await cancel(`p_source => 'market', p_dry_run => true`)).toBe(2);
    expect(await cancel(`p_key => 'A', p_dry_run => true`)).toBe(2);
    expect(await cancel(`p_key => 'A', p_status => 'running', p_dry_run => true`)).toBe(0);
    expect(await cancel(`p_key => 'A', p_data_type => 'quote'`)).toBe(1);
    expect(await db.query('select key, data_type from pgfresh_engine.open_jobs order by id')).toEqual([
      { key: 'B', data_type: 'quote' },
      { key: 'A', data_type: 'trade' },
    ]);
  });

  it('dead letters are enqueued again, with their priority, and no others', async () => {
    const clock = await freezeClock(db);
    await scene.register();
    const ids: number[] = [];
    for (const [type, key] of [
      ['quote', 'A'],
      ['quote', 'B'],
      ['trade', 'A'],
    ] as const) {
      ids.push((await queue.enqueue(db, type, key, { priority: 7 })).jobId);
      await queue.fail(db, [{ ...(await scene.claimOne()), bytes: 0 }], { permanent: true });
      await clock.advance('1 second');
    }
    await queue.enqueue(db, 'quote', 'cancelled');
    await db.query(`select pgfresh.cancel_queue_jobs(p_key => 'cancelled')`);
    const retry = (filter: string, values: number[] = []) =>
      scene.value<number>(`pgfresh.retry_failed_jobs(${filter})`, values);
    expect(await retry('array[$1::bigint], p_dry_run => true', [ids[1]!])).toBe(1);
    expect(await retry(`p_data_type => 'quote', p_dry_run => true`)).toBe(2);
    expect(await retry(`p_source => 'exchange', p_dry_run => true`)).toBe(1);
    expect(await retry(`p_since => pgfresh.clock() - interval '2 seconds', p_dry_run => true`)).toBe(2);
    expect(await retry(`p_since => '-infinity', p_dry_run => true`)).toBe(3);
    expect(await retry(`p_source => 'market', p_since => pgfresh.clock() - interval '2 seconds'`)).toBe(1);
    expect(await scene.claim()).toMatchObject([{ key: 'B', priority: 7 }]);
    expect(
      await scene.value('select array_agg(id order by id) from pgfresh.failed_jobs where redriven_at is null'),
    ).toEqual([ids[0], ids[2]]);
  });

  it('sound 11: a key that is not admitted any more, or is locked, keeps no other dead letter from its retry', async () => {
    await scene.register();
    await db.query(`update pgfresh.data_type_registry set key_pattern = '^[A-Z]+$' where data_type = 'quote'`);
    for (const key of ['A', 'GONE', 'LOCKED', 'Z']) {
      await queue.enqueue(db, 'quote', key);
      await queue.fail(db, [{ ...(await scene.claimOne()), bytes: 0 }], { permanent: true });
    }
    await db.query(`update pgfresh.data_type_registry set key_pattern = '^(A|LOCKED|Z)$' where data_type = 'quote'`);
    const left = () => db.query(`select key from pgfresh.failed_jobs where redriven_at is null order by key`);
    const client = new pg.Client(scene.url);
    const said: (string | undefined)[] = [];
    client.on('notice', ({ message }) => said.push(message));
    await client.connect();
    const retry = async (more = '') =>
      (
        await client.query<{ count: string }>(
          `select pgfresh.retry_failed_jobs(p_data_type => 'quote'${more}) as count`,
        )
      ).rows[0]!.count;
    const skipped = (count: number) => expect.stringMatching(new RegExp(`^${count} failed jobs were skipped: `));
    try {
      expect([await retry(', p_dry_run => true'), said]).toEqual(['3', [skipped(1)]]);
      await db.transact('stranger', async (tx) => {
        await tx.query(`select from pgfresh_engine.pairs where key = 'LOCKED' for update`);
        expect([await retry(), said.slice(1)]).toEqual(['2', [skipped(2)]]);
      });
      expect(await left()).toEqual([{ key: 'GONE' }, { key: 'LOCKED' }]);
      expect([await retry(), said.slice(2)]).toEqual(['1', [skipped(1)]]);
    } finally {
      await client.end();
    }
    expect(await left()).toEqual([{ key: 'GONE' }]);
    expect(await db.query(`select key from pgfresh_engine.open_jobs order by key`)).toEqual([
      { key: 'A' },
      { key: 'LOCKED' },
      { key: 'Z' },
    ]);
    await db.query(`update pgfresh.data_type_registry set key_pattern = null where data_type = 'quote'`);
  });

  it('dead letters are enqueued again, though they are more than one set has room for', async () => {
    await scene.register();
    const { jobId } = await queue.enqueue(db, 'quote', 'A');
    await queue.fail(db, [{ ...(await scene.claimOne()), bytes: 0 }], { permanent: true });
    await db.query(
      `insert into pgfresh_engine.history_other
       select copy.* from pgfresh_engine.history_other as h cross join generate_series(1, 100000) as n
       cross join lateral jsonb_populate_record(h, jsonb_build_object('id', -n, 'key', 'K' || n)) as copy
       where h.id = $1::bigint`,
      [jobId],
    );
    expect(await scene.value(`pgfresh.retry_failed_jobs(p_data_type => 'quote')`)).toBe(100_001);
    expect(await scene.value('select count(*)::int from pgfresh_engine.open_jobs')).toBe(100_001);
    expect(await scene.value('select count(*)::int from pgfresh.failed_jobs where redriven_at is null')).toBe(0);
  });
});

it('keys are written as their data type writes them, and those that it cannot have are refused', async () => {
  const choosy = await QueueScene.open();
  await choosy.db.query(
    `update pgfresh.data_type_registry set normalise = 'upper', key_pattern = '^[A-Z]{1,5}$' where data_type = 'quote'`,
  );
  expect(await choosy.queue.enqueueMany(choosy.db, 'quote', ['aapl', 'AAPL', 'Msft'])).toMatchObject({ queued: 2 });
  await expect(choosy.queue.enqueueMany(choosy.db, 'quote', ['TSLA', 'not one'])).rejects.toMatchObject({
    code: 'PGF_KEY_UNKNOWN',
  });
  expect(await choosy.value('(select array_agg(key order by key) from pgfresh_engine.job)')).toEqual(['AAPL', 'MSFT']);
});
