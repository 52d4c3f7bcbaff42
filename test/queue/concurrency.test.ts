import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, it, onTestFinished, test } from 'vitest';
import type { Database, Queryable } from '../../src/database/index.ts';
import type { ClaimedJob } from '../../src/queue/index.ts';
import { blocked } from '../harness/blocked.ts';
import { freezeClock } from '../harness/clock.ts';
import { openDatabase } from '../harness/database.ts';
import { Proxy } from '../harness/proxy.ts';
import { failures, QueueScene, unfinish } from './scene.ts';
import { inSchema } from '../harness/schemas.ts';

const endOf = ({ id, attempt, request }: ClaimedJob, bytes = 5) => ({ id, attempt, request, bytes });

describe('a claim whose answer is lost', () => {
  it('strands nothing: its jobs are ready again after five seconds, those of known claims stay', async () => {
    const scene = await QueueScene.open();
    const clock = await freezeClock(scene.db);
    await scene.source('metered', { quotaBytes: 1_000_000 });
    await scene.type('page', 'metered', 100);
    await scene.queue.enqueueMany(scene.db, 'quote', ['A', 'B']);
    const worker = await scene.register();
    const known = await scene.queue.claim(scene.db, { worker, limit: 10 });
    expect(known.jobs).toHaveLength(2);
    await scene.queue.enqueueMany(scene.db, 'quote', ['C', 'D']);
    await scene.queue.enqueueMany(scene.db, 'page', ['E']);

    const { proxy, url } = await Proxy.before(scene.url);
    onTestFinished(() => proxy.close());
    const far = openDatabase(url);
    await far.query('select 1');
    let sent = false;
    proxy.judge = (chunk, way) => {
      sent ||= chunk.includes('claim_jobs');
      return sent && way === 'to client' ? 'cut' : 'pass';
    };
    await expect(scene.queue.claim(far, { worker, limit: 10 })).rejects.toMatchObject({ code: 'PGF_COMMIT_UNKNOWN' });
    await far.close();

    const ready = () =>
      scene.value<string | null>(`(select string_agg(key, '' order by key) from pgfresh_engine.job where state = 'r')`);
    const heartbeat = () =>
      scene.value<{ stranded: string[] }>('pgfresh_engine.heartbeat_process($1::bigint, $2::uuid[])', [
        worker,
        [known.request],
      ]);
    expect(await ready()).toBeNull();
    expect(await scene.value('(select sum(reserved)::int from pgfresh_engine.source_state)')).toBe(100);
    await clock.advance('5 seconds');
    expect(await heartbeat()).toEqual({ alive: true, stranded: [] });
    await clock.advance('1 millisecond');
    const { stranded } = await heartbeat();
    expect(stranded).toHaveLength(1);
    expect(await ready()).toBeNull();
    expect(await scene.value('pgfresh_engine.release_claim($1::bigint, $2::uuid)', [worker, stranded[0]])).toBe(3);
    await heartbeat();
    expect(await ready()).toBe('CDE');
    expect(await scene.value('(select sum(reserved)::int from pgfresh_engine.source_state)')).toBe(0);
    expect(await scene.value(`(select max(retries + lost) from pgfresh_engine.job)`)).toBe(0);
    expect(await scene.value('(select array_agg(request) from pgfresh_engine.claim)')).toEqual([known.request]);
    const again = await scene.claim();
    expect(again.map(({ key, attempt }) => `${key}${attempt}`).toSorted()).toEqual(['C2', 'D2', 'E2']);
  });
});

/** The newest claim of worker $1. */
const claimed = '(select request from pgfresh_engine.claim where worker = $1::bigint order by claimed_at desc limit 1)';

describe('nobody waits', () => {
  let scene: QueueScene;
  beforeAll(async () => {
    scene = await QueueScene.open();
    await freezeClock(scene.db, '2026-01-05T12:00:00Z');
    await scene.register();
  });

  async function running(key: string): Promise<ClaimedJob> {
    await scene.queue.enqueue(scene.db, 'quote', key, { priority: 1_000 });
    let job: ClaimedJob | undefined;
    while (job?.key !== key) [job] = await scene.claim({ limit: 1 });
    return job;
  }

  /** Does `second` while `first` has been done and not yet committed, and fails if it waits for any lock. */
  async function during<T>(
    first: (tx: Queryable) => Promise<unknown>,
    second: (tx: Queryable) => Promise<T>,
  ): Promise<T> {
    return scene.db.transact('first', async (tx) => {
      await first(tx);
      return scene.db.transact('second', second, { lockTimeoutMs: 1, attempts: 1 });
    });
  }

  it.each([
    ['', {}, 'running'],
    [' with a higher priority', { priority: 5_000 }, 'running'],
    [' by force', { force: true }, 'busy'],
  ] as const)('an enqueue%s does not wait for a completion in flight', async (name, options, result) => {
    const job = await running(`enqueue${name}`);
    expect(
      await during(
        (tx) => scene.queue.complete(tx, [endOf(job)]),
        (tx) => scene.queue.enqueue(tx, 'quote', job.key, options),
      ),
    ).toEqual({ jobId: job.id, result });
    expect(await scene.job(job.id)).toMatchObject({ status: 'succeeded' });
    expect(await scene.queue.enqueue(scene.db, 'quote', job.key)).toMatchObject({ result: 'queued' });
  });

  it.each(failures)('an enqueue does not wait for a %s in flight', async (verdict) => {
    const job = await running(`enqueue during ${verdict}`);
    const { result } = await during(
      (tx) => unfinish(scene.queue, tx, [endOf(job)], verdict),
      (tx) => scene.queue.enqueue(tx, 'quote', job.key),
    );
    expect(result).toBe('running');
  });

  it('an enqueue of a set with one pair that is being ended queues all the others', async () => {
    const job = await running('in the set');
    const counts = await during(
      (tx) => scene.queue.complete(tx, [endOf(job)]),
      (tx) => scene.queue.enqueueMany(tx, 'quote', ['new in the set', job.key, 'also new in the set']),
    );
    expect(counts).toMatchObject({ queued: 2, running: 1 });
  });

  it('an enqueue does not wait for a claim in flight', async () => {
    await scene.db.query(`select pgfresh.cancel_queue_jobs(p_source => 'market')`);
    await scene.queue.enqueue(scene.db, 'quote', 'claim in flight');
    const worker = await scene.register();
    const { result } = await during(
      (tx) => scene.queue.claim(tx, { worker, limit: 1 }),
      (tx) => scene.queue.enqueue(tx, 'quote', 'claim in flight', { priority: 7 }),
    );
    expect(result).toBe('merged');
  });

  it('an enqueue does not wait for another one of the same pair, and leaves it to that one', async () => {
    await scene.complete([await running('asked for by two')]);
    const { result } = await during(
      (tx) => scene.queue.enqueue(tx, 'quote', 'asked for by two'),
      (tx) => scene.queue.enqueue(tx, 'quote', 'asked for by two'),
    );
    expect(result).toBe('busy');
    expect(await scene.queue.enqueue(scene.db, 'quote', 'asked for by two')).toMatchObject({ result: 'merged' });
  });

  it("a completion does not wait for a user's open transaction that enqueued the same running pair", async () => {
    const job = await running('open transaction');
    const done = await during(
      (tx) => scene.queue.enqueue(tx, 'quote', job.key, { priority: 9_000 }),
      (tx) => scene.queue.complete(tx, [endOf(job)]),
    );
    expect(done.map(Number)).toEqual([job.id]);
  });

  it.each(['one source', 'several sources'])(
    'a claim from %s does not wait for an open transaction that raised a priority, and takes the others',
    async (count) => {
      if (count !== 'one source') await scene.source('another');
      await scene.db.query(`select pgfresh.cancel_queue_jobs(p_source => 'market')`);
      await scene.queue.enqueueMany(scene.db, 'quote', ['raised', 'other']);
      const worker = await scene.register();
      const { jobs } = await during(
        (tx) => scene.queue.enqueue(tx, 'quote', 'raised', { priority: 9_000 }),
        (tx) => scene.queue.claim(tx, { worker, limit: 10 }),
      );
      expect(jobs.map(({ key }) => key)).toEqual(['other']);
    },
  );

  it('a claim does not wait for a job that has come due and is being cancelled', async () => {
    await scene.db.query(`select pgfresh.cancel_queue_jobs(p_source => 'market')`);
    await scene.queue.enqueue(scene.db, 'quote', 'due', { runAt: new Date('2026-01-05T13:00:00Z') });
    await scene.db.query(`update pgfresh_engine.job set run_at = pgfresh.clock() where key = 'due'`);
    await scene.queue.enqueue(scene.db, 'quote', 'other');
    const worker = await scene.register();
    const { jobs } = await during(
      (tx) => tx.query(`select pgfresh.cancel_queue_jobs(p_key => 'due')`),
      (tx) => scene.queue.claim(tx, { worker, limit: 10 }),
    );
    expect(jobs.map(({ key }) => key)).toEqual(['other']);
  });

  it('a claim does not wait for another one from a source with a quota, and takes from the others', async () => {
    await scene.db.query(`select pgfresh.cancel_queue_jobs(p_source => 'market')`);
    const metered = await scene.source('metered', { quotaBytes: 1_000_000 });
    await scene.type('page', 'metered', 100);
    await scene.queue.enqueueMany(scene.db, 'page', ['A', 'B']);
    await scene.queue.enqueue(scene.db, 'quote', 'other');
    const [one, another] = [await scene.register(), await scene.register()];
    const { jobs } = await during(
      (tx) => scene.queue.claim(tx, { worker: one, limit: 1, sources: [metered] }),
      (tx) => scene.queue.claim(tx, { worker: another, limit: 10 }),
    );
    expect(jobs.map(({ key }) => key)).toEqual(['other']);
    expect((await scene.claim()).map(({ key }) => key)).toEqual(['B']);
  });

  it('a completion does not wait for another one of the same data type', async () => {
    const [first, second] = [await running('ends first'), await running('ends second')];
    // The first one of all makes the row that the others learn in.
    await scene.complete([await running('ended before')]);
    const usage = async () => {
      const [row] = await scene.db.query<{ bytes: number; calls: number }>(
        `select data_size_bytes as bytes, calls from pgfresh.api_data_usage where source = 'market'`,
      );
      return row!;
    };
    const before = await usage();
    await onOtherShards(async (one, other) => {
      await one.transact('first', async (tx) => {
        await scene.queue.complete(tx, [endOf(first)]);
        const end = (rival: Queryable) => scene.queue.complete(rival, [endOf(second)]);
        expect(await other.transact('second', end, { lockTimeoutMs: 1, attempts: 1 })).toHaveLength(1);
      });
    });
    expect(await usage()).toEqual({ bytes: before.bytes + 10, calls: before.calls + 2 });
  });

  it('recovery does not wait for a completion in flight', async () => {
    const job = await running('recovery');
    await scene.db.query(`update pgfresh_engine.job set progress_at = '-infinity'`);
    await scene.db.query(`update pgfresh_engine.claim set claimed_at = '-infinity'`);
    await during(
      (tx) => scene.queue.complete(tx, [endOf(job)]),
      (tx) => tx.query('select pgfresh.recover_stuck_jobs()'),
    );
    expect(await scene.job(job.id)).toMatchObject({ status: 'succeeded' });
  });

  it('recovery does not wait for a worker that is just doing something', async () => {
    const worker = await scene.register();
    await scene.db.query(`update pgfresh_engine.process set lease_until = '-infinity' where id = $1::bigint`, [worker]);
    const left = await during(
      (tx) => tx.query('update pgfresh_engine.process set idle = not idle where id = $1::bigint', [worker]),
      async (tx) => {
        await tx.query('select pgfresh.recover_stuck_jobs()');
        return tx.query('select from pgfresh_engine.process where id = $1::bigint', [worker]);
      },
    );
    expect(left).toHaveLength(1);
    await scene.register();
  });

  it.each([
    ['recovery from a dead worker', 'pgfresh.recover_stuck_jobs()', `lease_until = '-infinity'`],
    ['a worker that retires', 'pgfresh_engine.retire_process($1::bigint)', 'idle = idle'],
    ['a claim whose answer was lost', `pgfresh_engine.release_claim($1::bigint, ${claimed})`, 'idle = idle'],
  ])('%s does not wait for a completion in flight, and leaves the job to it', async (name, call, worker) => {
    const job = await running(name);
    const [row] = await scene.db.query<{ id: number }>(
      `update pgfresh_engine.process set ${worker} where id = (select worker from pgfresh_engine.job where id = $1::bigint) returning id`,
      [job.id],
    );
    await scene.db.query(`update pgfresh_engine.claim set claimed_at = claimed_at - interval '10 seconds'`);
    await during(
      (tx) => scene.queue.complete(tx, [endOf(job)]),
      (tx) => tx.query(`select ${call}`, call.includes('$1') ? [row!.id] : []),
    );
    expect(await scene.job(job.id)).toMatchObject({ status: 'succeeded', attempts: 1 });
    await scene.register();
  });

  /** Two connections that write to the ledger of a source without a quota in different rows. */
  async function onOtherShards(act: (one: Database, other: Database) => Promise<void>): Promise<void> {
    const shardOf = async (db: Database) => {
      const [row] = await db.query<{ shard: number }>('select pg_backend_pid() % 16 as shard');
      return row!.shard;
    };
    const one = openDatabase(scene.url, { poolSize: 1 });
    let other = openDatabase(scene.url, { poolSize: 1 });
    while ((await shardOf(one)) === (await shardOf(other))) other = openDatabase(scene.url, { poolSize: 1 });
    await act(one, other);
  }
});

describe('sets with the same new pairs', () => {
  const letters = (from: string, to: string) =>
    Array.from({ length: to.charCodeAt(0) - from.charCodeAt(0) + 1 }, (_, index) =>
      String.fromCharCode(from.charCodeAt(0) + index),
    );

  it('never wait for each other: what the other one is just adding is busy, and the rest is queued', async () => {
    const { db, queue } = await QueueScene.open();
    await db.transact(
      'holder',
      async (tx) => {
        await queue.enqueue(tx, 'quote', 'M');
        expect(await queue.enqueueMany(db, 'quote', letters('A', 'Z').toReversed())).toMatchObject({
          queued: 25,
          busy: 1,
        });
        expect(await queue.enqueueMany(tx, 'quote', letters('L', 'N'))).toMatchObject({ merged: 3 });
      },
      { lockTimeoutMs: 1_000, attempts: 1 },
    );
    expect(await queue.enqueueMany(db, 'quote', letters('A', 'Z'))).toMatchObject({ merged: 26 });
  });
});

describe('ends of one job in one call', () => {
  it('in an earlier and the present attempt have one effect, with the bytes of the present one', async () => {
    const { scene, job, late } = await takenOver();
    const done = await scene.queue.complete(scene.db, [endOf(late, 1_000), endOf(job, 7)]);
    expect(done.map(Number)).toEqual([job.id]);
    expect(await scene.value('(select array_agg(bytes::int) from pgfresh_engine.history_succeeded)')).toEqual([7]);
    expect(await scene.value('(select sum(bytes)::int from pgfresh_engine.usage)')).toBe(7);
  });

  it.each(['complete', ...failures] as const)('that say the same thing twice are refused: %s', async (how) => {
    const { scene, job } = await takenOver();
    const twice = [endOf(job), endOf(job)];
    const ending =
      how === 'complete' ? scene.queue.complete(scene.db, twice) : unfinish(scene.queue, scene.db, twice, how);
    await expect(ending).rejects.toMatchObject({
      code: 'PGF_ARGUMENT_INVALID',
      message: expect.stringContaining('one job twice') as string,
    });
    expect(await scene.job(job.id)).toMatchObject({ status: 'running', attempts: 2 });
    // The attempt that was lost before may have called.
    expect(await scene.db.query('select bytes, calls from pgfresh_engine.usage')).toEqual([{ bytes: 0, calls: 1 }]);
  });
});

describe('no deadlock', () => {
  let scene: QueueScene;
  beforeAll(async () => {
    scene = await QueueScene.open({ poolSize: 4 });
  });

  /** Running jobs that lie in the table in another order than that of their ids. */
  async function runningJobs(count: number): Promise<ClaimedJob[]> {
    await scene.db.query(`select pgfresh.cancel_queue_jobs(p_source => 'market')`);
    const keys = Array.from({ length: count }, (_, index) => `K${index}`);
    for (const priority of [0, 1, 2, 4, 8]) {
      const some = keys.filter((_, index) => index % 5 === Math.log2(priority || 0.5) + 1);
      await scene.queue.enqueueMany(scene.db, 'quote', some, { priority });
    }
    await scene.register();
    const jobs: ClaimedJob[] = [];
    while (jobs.length < count) jobs.push(...(await scene.claim({ limit: 20 })));
    return jobs;
  }

  const acts: Record<string, (jobs: readonly ClaimedJob[]) => Promise<unknown>> = {
    complete: (jobs) =>
      scene.queue.complete(
        scene.db,
        jobs.map((job) => endOf(job)),
      ),
    fail: (jobs) =>
      scene.queue.fail(
        scene.db,
        jobs.map((job) => endOf(job)),
        { permanent: true },
      ),
    heartbeat: (jobs) => scene.db.query('select pgfresh.heartbeat_jobs($1::bigint[])', [jobs.map(({ id }) => id)]),
    cancel: (jobs) => scene.db.query('select pgfresh.cancel_queue_jobs($1::bigint[])', [jobs.map(({ id }) => id)]),
  };
  const pairs = Object.keys(acts).flatMap((one, index, names) =>
    names.slice(index).map((other) => [one, other] as const),
  );

  it.each(pairs)('of %s and %s of the same jobs, named in opposite order', async (one, other) => {
    for (let round = 0; round < 8; round++) {
      const jobs = await runningJobs(300);
      await Promise.all([acts[one]!(jobs), acts[other]!(jobs.toReversed())]);
    }
  });

  it.each(Object.keys(acts))('because %s locks the jobs in the order of their ids', async (name) => {
    const jobs = (await runningJobs(300)).toSorted((a, b) => a.id - b.id);
    const middle = jobs[150]!.id;
    let acting: Promise<unknown> | undefined;
    await scene.db.transact('holder', async (tx) => {
      await tx.query('select from pgfresh_engine.job where id = $1::bigint for update', [middle]);
      acting = acts[name]!(jobs);
      await blocked(scene.db);
      const free = await tx.query<{ id: number }>(
        'select id from (select id from pgfresh_engine.job where id <> $1::bigint for update skip locked) as free order by id',
        [middle],
      );
      expect(free.map(({ id }) => id)).toEqual(jobs.slice(151).map(({ id }) => id));
    });
    await acting;
  });

  it.each(['complete', 'fail'] as const)('of a quota that is taken away and ends that settle it: %s', async (end) => {
    await scene.source(`metered-${end}`, { quotaBytes: 1_000_000 });
    await scene.type(`page-${end}`, `metered-${end}`, 100);
    await scene.queue.enqueueMany(scene.db, `page-${end}`, ['A', 'B']);
    await scene.register();
    const [first, second] = await scene.claim();
    expect(second).toBeDefined();
    await scene.db.transact('ends', async (tx) => {
      await tx.query('select from pgfresh_engine.job where id = $1::bigint for update', [first!.id]);
      // Waits for nobody: a quota touches no job.
      await scene.db.query(`update pgfresh.sources set quota_bytes = null where name = 'metered-${end}'`);
      if (end === 'complete') await scene.queue.complete(tx, [endOf(first!)]);
      else await scene.queue.fail(tx, [endOf(first!)], { permanent: true, outcome: 'http_5xx', counts: true });
    });
    expect((await scene.complete([second!], 5)).map(Number)).toEqual([second!.id]);
    expect(await scene.value('(select sum(reserved)::int from pgfresh_engine.source_state)')).toBe(0);
  });
});

describe('sound 9: a quota that changes while jobs are being enqueued strands none of them', () => {
  it.each([
    ['goes', 1_000_000_000, null],
    ['comes', null, 1_000_000_000],
  ])('%s', async (_, before, after) => {
    const scene = await QueueScene.open();
    const quota = (bytes: number | null) =>
      scene.db.query(`update pgfresh.sources set quota_bytes = $1::bigint where name = 'market'`, [bytes]);
    await quota(before);
    await scene.db.transact('enqueue', async (tx) => {
      await scene.queue.enqueue(tx, 'quote', 'small', { estimatedBytes: 1_000 });
      await scene.queue.enqueue(tx, 'quote', 'large', { estimatedBytes: 2_000_000 });
      await quota(after);
    });
    expect((await scene.claim()).map(({ key }) => key).toSorted()).toEqual(['large', 'small']);
  });
});

/** A worker for each of two sources with a quota, and a job that it holds. */
async function twoHolders() {
  const scene = await QueueScene.open({ poolSize: 4 });
  const clock = await freezeClock(scene.db);
  const claimFor = async (type: string, key: string) => {
    const worker = await scene.register();
    await scene.queue.enqueue(scene.db, type, key);
    const [job] = await scene.claim({ limit: 1 });
    expect(job?.key).toBe(key);
    return { worker, job: job! };
  };
  for (const name of ['first', 'second']) {
    await scene.source(name, { quotaBytes: 1_000_000 });
    await scene.type(name, name, 100);
  }
  return { scene, clock, claimFor };
}

describe('no deadlock over the ledger', () => {
  it('of a lost claim that is put back and a claim of the same worker', async () => {
    const { scene, claimFor } = await twoHolders();
    const { worker } = await claimFor('first', 'stranded');
    let release: Promise<unknown[]> | undefined;
    await scene.db.transact('claim', async (tx) => {
      // The order in which a claim takes them.
      await tx.query('select from pgfresh_engine.source_state order by source_id for update');
      release = scene.db.query(`select pgfresh_engine.release_claim($1::bigint, ${claimed}) as jobs`, [worker]);
      release.catch(() => {});
      await blocked(scene.db);
      await tx.query('update pgfresh_engine.process set idle = true where id = $1::bigint', [worker]);
    });
    expect(await release).toEqual([{ jobs: 1 }]);
  });

  it('of an end of jobs of two sources and one that has locked the row of a source', async () => {
    const { scene } = await twoHolders();
    await scene.queue.enqueueMany(scene.db, 'first', ['A', 'B']);
    const jobs = await scene.claim();
    // Jobs of a data type that has moved, one of them claimed by a version that did not note definitions.
    await scene.db.query(
      `update pgfresh_engine.job set definition = null, source_id = (select id from pgfresh.sources where name = 'second')
       where key = 'B'`,
    );
    await scene.db.query(`update pgfresh.sources set failure_streak = 1 where name = 'second'`);
    let ended: Promise<number[]> | undefined;
    await scene.db.transact(
      'end',
      async (tx) => {
        await tx.query(`select from pgfresh.sources where name = 'second' for no key update`);
        ended = scene.complete(jobs, 7);
        ended.catch(() => {});
        await blocked(scene.db);
        await tx.query('select from pgfresh_engine.source_state order by source_id for update');
      },
      { attempts: 1 },
    );
    expect(await ended).toHaveLength(2);
  });

  it.each([
    ['dead workers', '16 seconds', 'recover_stuck_jobs()', { dead_workers: 2, lost: 2 }],
    ['silent jobs', '301 seconds', 'recover_silent_jobs(10)', 2],
  ])(
    'of recovery from several %s and a transaction that ends jobs of several sources',
    async (_, age, call, result) => {
      const { scene, clock, claimFor } = await twoHolders();
      await claimFor('second', 'held by the one');
      await claimFor('first', 'held by the other');
      await clock.advance(age);
      const live = [await claimFor('first', 'ends first'), await claimFor('second', 'ends second')];
      let recovery: Promise<unknown[]> | undefined;
      await scene.db.transact(
        'ends',
        async (tx) => {
          await scene.queue.complete(tx, [endOf(live[0]!.job)]);
          recovery = scene.db.query(`select ${inSchema(call)} as done`);
          recovery.catch(() => {});
          await blocked(scene.db);
          await scene.queue.complete(tx, [endOf(live[1]!.job)]);
        },
        { attempts: 1 },
      );
      expect(await recovery).toMatchObject([{ done: result }]);
    },
  );
});

describe('a stopped worker', () => {
  test('that goes on after its lease has no effect', async () => {
    const scene = await QueueScene.open();
    const clock = await freezeClock(scene.db);
    await scene.queue.enqueue(scene.db, 'quote', 'AAPL');
    const script = fileURLToPath(new URL('stoppable-worker.ts', import.meta.url));
    const child = spawn(process.execPath, [script, scene.url], { stdio: ['pipe', 'pipe', 'inherit'] });
    const closed = once(child, 'close');
    onTestFinished(async () => {
      child.kill('SIGKILL');
      await closed;
    });
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const { job } = JSON.parse((await lines.next()).value as string) as { job: ClaimedJob };
    expect(job).toMatchObject({ key: 'AAPL', attempt: 1 });

    child.kill('SIGSTOP');
    await clock.advance('16 seconds');
    expect(await scene.value('pgfresh.recover_stuck_jobs()')).toMatchObject({
      dead_workers: 1,
      lost: 1,
      leases_trusted: true,
    });
    await scene.register('taker');
    const taken = await scene.claimOne();
    expect(taken).toMatchObject({ id: job.id, attempt: 2 });

    child.kill('SIGCONT');
    child.stdin.write('go on\n');
    expect(JSON.parse((await lines.next()).value as string)).toEqual({ done: [] });
    expect(await scene.job(job.id)).toMatchObject({ status: 'running', attempts: 2, locked_by: 'taker' });
    // The attempt that was lost may have called, and what it says too late is not believed.
    expect(await scene.db.query('select bytes, calls from pgfresh_engine.usage')).toEqual([{ bytes: 0, calls: 1 }]);
    expect((await scene.complete([taken], 7)).map(Number)).toEqual([job.id]);
    child.stdin.write('once more\n');
    expect(JSON.parse((await lines.next()).value as string)).toEqual({ done: [] });
    expect(await scene.value('(select sum(bytes)::int from pgfresh_engine.usage)')).toBe(7);
    child.stdin.end();
    expect(await closed).toEqual([0, null]);
  });
});

/** A job that was lost once and now runs in its second attempt. */
async function takenOver(): Promise<{ scene: QueueScene; job: ClaimedJob; late: ClaimedJob }> {
  const scene = await QueueScene.open();
  await scene.queue.enqueue(scene.db, 'quote', 'AAPL');
  const late = await scene.claimOne();
  await scene.queue.putBack(scene.db, [endOf(late, 0)], { lost: true });
  await scene.register();
  let job: ClaimedJob | undefined;
  while (!job) [job] = await scene.claim({ limit: 1 });
  return { scene, job, late };
}
