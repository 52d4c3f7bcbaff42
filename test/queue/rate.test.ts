import pg from 'pg';
import { beforeEach, describe, expect, it } from 'vitest';
import { freezeClock } from '../harness/clock.ts';
import { seededRandom } from '../harness/random.ts';
import { QueueScene } from './scene.ts';

const scene = await QueueScene.open({ poolSize: 8 });
const { db, queue } = scene;
const clock = await freezeClock(db);
const keys = (count: number, prefix = 'k') => Array.from({ length: count }, (_, n) => `${prefix}${n}`);
const claimKeys = async (limit = 100) => (await scene.claim({ limit })).map((job) => job.key);
/** How many calls of the minute are left. */
const free = () =>
  scene.value<number>(
    `select sum(s.rate_limit_per_minute * s.api_keys - coalesce((
       select sum(t.calls) from pgfresh_engine.rate_slot as t where t.source_id = s.id and t.free_at > (select pgfresh.clock())), 0))::int
     from pgfresh.sources as s where s.rate_limit_per_minute is not null`,
  );

/** Ten calls a minute, none of them kept for anybody. */
beforeEach(async () => {
  await db.query(
    'truncate pgfresh_engine.job, pgfresh_engine.pairs, pgfresh_engine.claim, pgfresh_engine.source_place',
  );
  await db.query(`delete from pgfresh.data_type_registry where data_type <> 'quote'`);
  await db.query(`delete from pgfresh.sources where name <> 'market'`);
  await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
  await db.query('truncate pgfresh_engine.source_past, pgfresh_engine.rate_slot');
  // Times are kept in tenths of a second.
  await clock.set('2026-01-05T12:00:00Z');
  await scene.source('rated', { rate: 10 });
  await scene.type('price', 'rated', 100);
});

interface Seen {
  /** When each call was handed out. */
  readonly handedOut: number[];
  /** When the provider saw each call, in milliseconds of the simulated clock. */
  readonly seen: number[];
  readonly claims: number;
}

/**
 * Workers that ask for as much as they like at moments of their own, send what they get at any moment until the last allowed one,
 * over a network whose delay varies by as much as is allowed.
 */
async function simulate(rate: number, workers: number, seconds: number, seed: number): Promise<Seen> {
  const random = seededRandom(seed);
  await db.query(`delete from pgfresh.sources where name = 'simulated'`);
  await scene.source('simulated', { rate });
  const type = await scene.type('tick', 'simulated');
  await queue.enqueueMany(db, 'tick', keys(Math.ceil((rate * (seconds + 120)) / 60)), { priority: 1 });
  const seen: number[] = [];
  const handedOut: number[] = [];
  let claims = 0;
  for (let passed = 0; passed < seconds * 1_000;) {
    const step = Math.floor(random() * 500);
    passed += step;
    await clock.advance(`${step} milliseconds`);
    const answers = await Promise.all(
      Array.from({ length: workers }, () =>
        db.query<{ now: Date; use_by: Date }>(
          `select pgfresh.clock() as now, use_by from pgfresh_engine.claim_jobs(null, gen_random_uuid(), $1::int, p_types => array[$2::int])`,
          [1 + Math.floor(random() * rate), type],
        ),
      ),
    );
    claims += workers;
    for (const { now, use_by } of answers.flat()) {
      handedOut.push(now.getTime());
      // The worst that is allowed: a round of calls that are late and slow, and the next by the same places early and fast.
      const late = Math.floor(passed / 62_500) % 2 === 0 ? 1 : 0;
      const chance = () => (random() < 0.5 ? late : random());
      seen.push(now.getTime() + chance() * (use_by.getTime() - now.getTime()) + 40 + chance() * 750);
    }
  }
  return { handedOut, seen: seen.toSorted((a, b) => a - b), claims };
}

describe.each([1, 4])('of 300 a minute with %i workers, for 6 minutes', (workers) => {
  it('the provider sees at least 285 a minute, and never more than 300 in any', { timeout: 120_000 }, async () => {
    const { handedOut, seen, claims } = await simulate(300, workers, 360, workers);
    expect(claims).toBeGreaterThan(1_000 * workers);
    const tightest = Math.min(...seen.slice(300).map((time, index) => time - seen[index]!));
    expect(tightest).toBeGreaterThanOrEqual(60_000);
    // Of those that are handed out, no ten seconds have more than 18.5 %; only where they arrive they may be denser.
    const densest = Math.min(...handedOut.slice(56).map((time, index) => time - handedOut[index]!));
    expect(densest).toBeGreaterThanOrEqual(10_000);
    // From any moment on, five minutes bring 1,425.
    const start = seen[0]!;
    const from = (ms: number) => seen.filter((time) => time >= start + ms && time < start + ms + 300_000).length;
    for (const ms of [0, 10_000, 30_000, 60_000]) expect(from(ms)).toBeGreaterThanOrEqual(1_425);
  });
});

it('gives each job one call and the time by which it is to be sent', async () => {
  await queue.enqueueMany(db, 'price', keys(12));
  const before = performance.now();
  const { jobs } = await queue.claim(db, { worker: await scene.register(), limit: 20 });
  expect(jobs).toHaveLength(10);
  for (const { apiKey, sendBy } of jobs) {
    expect(apiKey).toBe(1);
    expect(sendBy! - before).toBeGreaterThanOrEqual(1_250);
    expect(sendBy! - performance.now()).toBeLessThanOrEqual(1_250);
  }
  await queue.enqueue(db, 'quote', 'free');
  expect((await scene.claim())[0]).toMatchObject({ key: 'free', apiKey: null, sendBy: null });
});

it('tells SQL clients the same', async () => {
  await queue.enqueue(db, 'price', 'A');
  const [job] = await scene.value<{ use_by: string; api_key: number }[]>('pgfresh.get_queue_batch(1)');
  expect(job).toMatchObject({ api_key: 1 });
  expect(await scene.value('$1::timestamptz - pgfresh.clock() = interval $$1.25 seconds$$', [job!.use_by])).toBe(true);
});

it('is free again a minute after the last moment to send, whatever became of who took it', async () => {
  await queue.enqueueMany(db, 'price', keys(30));
  expect(await claimKeys()).toHaveLength(10);
  await clock.advance('61.999 seconds');
  expect(await claimKeys()).toEqual([]);
  await clock.advance('1 millisecond');
  expect(await claimKeys()).toHaveLength(10);
});

it('is given back by a claim that is killed before it commits', async () => {
  await queue.enqueueMany(db, 'price', keys(10));
  const killed = new pg.Client(scene.url);
  const ended = new Promise((resolve) => killed.on('error', resolve));
  await killed.connect();
  await killed.query('begin');
  const { pid } = (await killed.query<{ pid: number }>('select pg_backend_pid() as pid')).rows[0]!;
  const { rows } = await killed.query('select * from pgfresh_engine.claim_jobs(null, gen_random_uuid(), 10)');
  expect(rows).toHaveLength(10);
  // Others do not wait for it, and get nothing meanwhile.
  expect(await claimKeys()).toEqual([]);
  await db.query('select pg_terminate_backend($1::int, 5000)', [pid]);
  await ended;
  expect(await free()).toBe(10);
  expect(await claimKeys()).toHaveLength(10);
});

it('never makes claims at once overshoot together', async () => {
  await queue.enqueueMany(db, 'price', keys(100));
  const claims = await Promise.all(Array.from({ length: 8 }, () => claimKeys(3)));
  const more = claims.flat();
  for (let turn = 0; turn < 6; turn++) more.push(...(await claimKeys(3)));
  expect(more).toHaveLength(10);
  expect(new Set(more).size).toBe(10);
});

describe('a share for what people look at', () => {
  beforeEach(async () => {
    await db.query(`update pgfresh.sources set viewed_share = 0.35 where name = 'rated'`);
    await queue.enqueueMany(db, 'price', keys(20, 'nobody '), { priority: -1 });
  });

  it('is left by background work, and taken by the others', async () => {
    expect(await claimKeys()).toHaveLength(7);
    expect(await claimKeys()).toEqual([]);
    await queue.enqueueMany(db, 'price', keys(9, 'viewed '), { priority: 1 });
    expect(await claimKeys()).toEqual(['viewed 0', 'viewed 1', 'viewed 2']);
    expect(await claimKeys()).toEqual([]);
  });

  it('is filled by viewed work first, and background takes what lies beyond', async () => {
    await queue.enqueueMany(db, 'price', keys(4, 'viewed '), { priority: 1 });
    const taken = await claimKeys();
    expect(taken.slice(0, 4)).toEqual(keys(4, 'viewed '));
    expect(taken).toHaveLength(7);
  });

  it('is left by many claims at once', async () => {
    const claims = await Promise.all(Array.from({ length: 8 }, () => claimKeys(2)));
    const more = claims.flat();
    for (let turn = 0; turn < 6; turn++) more.push(...(await claimKeys(2)));
    expect(more).toHaveLength(7);
  });

  it('of a small rate never stops background work for good', async () => {
    await db.query(`update pgfresh.sources set rate_limit_per_minute = 1, viewed_share = 0.99 where name = 'rated'`);
    expect(await claimKeys()).toHaveLength(1);
  });
});

it('is there once for each API key', async () => {
  await scene.source('many', { rate: 3, apiKeys: 3 });
  await scene.type('bond', 'many');
  await queue.enqueueMany(db, 'bond', keys(40));
  const jobs = await scene.claim();
  expect([1, 2, 3].map((apiKey) => jobs.filter((job) => job.apiKey === apiKey).length)).toEqual([3, 3, 3]);
});

describe('an extra call', () => {
  const take = (apiKey: number | null = null) =>
    scene.value<boolean>(
      `pgfresh_engine.take_call((select id from pgfresh.sources where name = 'rated'), $1::smallint) is not null`,
      [apiKey],
    );

  it('is one of the rate, of the key that is asked for', async () => {
    await db.query(`update pgfresh.sources set api_keys = 2 where name = 'rated'`);
    expect(await take(2)).toBe(true);
    expect(
      await db.query('select api_key, calls from pgfresh_engine.rate_slot where free_at > (select pgfresh.clock())'),
    ).toEqual([{ api_key: 2, calls: 1 }]);
    for (let call = 0; call < 9; call++) expect(await take(2)).toBe(true);
    expect(await take(2)).toBe(false);
    expect(await take(1)).toBe(true);
    expect(await take()).toBe(true);
  });

  it('is refused while the source is paused, switched off or nothing is spent', async () => {
    await db.query(`select pgfresh.pause_source('rated')`);
    expect(await take()).toBe(false);
    await db.query(`select pgfresh.resume_source('rated')`);
    expect(await take()).toBe(true);
    await db.query(`insert into pgfresh.spending_stop (reason) values ('test')`);
    expect(await take()).toBe(false);
    await db.query(`delete from pgfresh.spending_stop`);
    await db.query(`update pgfresh.sources set enabled = false where name = 'rated'`);
    expect(await take()).toBe(false);
  });

  it('of a source without a rate takes nothing and is always allowed', async () => {
    const market = await scene.value<number>(`select id from pgfresh.sources where name = 'market'`);
    expect(
      await scene.value('pgfresh_engine.take_call($1::int) = pgfresh.clock() + interval $$1.25 seconds$$', [market]),
    ).toBe(true);
    expect(await free()).toBe(10);
  });
});

it('sound 2: a job that needs more calls than are left does not fail the claim', async () => {
  await scene.source('slow', { rate: 10 });
  await scene.type('detour', 'slow', 100);
  await scene.source('idle', { rate: 10 });
  await scene.type('calm', 'idle', 100);
  await queue.enqueueMany(db, 'price', ['of one call'], { priority: 1 });
  await queue.enqueueMany(db, 'detour', ['of eight calls'], { priority: 1 });
  await db.query(`update pgfresh_engine.job set needs = 8 where key = 'of eight calls'`);
  for (let call = 0; call < 5; call++) {
    await db.query(`select pgfresh_engine.take_call((select id from pgfresh.sources where name = 'slow'))`);
  }
  expect(await claimKeys()).toEqual(['of one call']);
  expect(await claimKeys()).toEqual([]);
});

describe('a limit that changes', () => {
  const change = (limit: number | null) =>
    db.query(`update pgfresh.sources set rate_limit_per_minute = $1::int where name = 'rated'`, [limit]);

  beforeEach(() => queue.enqueueMany(db, 'price', keys(60)));

  it('upwards is there at once', async () => {
    await claimKeys();
    await clock.advance('10 seconds');
    await change(15);
    expect(await claimKeys()).toHaveLength(5);
  });

  it('downwards counts what was called before it', async () => {
    await claimKeys(3);
    await clock.advance('20 seconds');
    await claimKeys(2);
    await change(2);
    // Of the five calls, two are counted, and those are the last.
    await clock.advance('42 seconds');
    expect(await claimKeys()).toEqual([]);
    await clock.advance('20 seconds');
    expect(await claimKeys()).toHaveLength(2);
  });

  it('downwards counts the calls of a claim that is under way', async () => {
    await db.transact('claim', async (tx) => {
      expect(await tx.query('select * from pgfresh_engine.claim_jobs(null, gen_random_uuid(), 4)')).toHaveLength(4);
      await change(4);
    });
    expect(await free()).toBe(0);
  });

  it('goes, and nothing waits', async () => {
    await claimKeys();
    await change(null);
    await queue.enqueueMany(db, 'price', keys(10, 'more '));
    expect(await claimKeys()).toHaveLength(60);
  });

  it('comes to a source that had none, and begins with a minute of waiting, since nobody counted', async () => {
    await change(null);
    await claimKeys(20);
    await change(10);
    await clock.advance('61.999 seconds');
    expect(await claimKeys()).toEqual([]);
    await clock.advance('1 millisecond');
    expect(await claimKeys()).toHaveLength(10);
  });

  it('goes with a key that is not used any more', async () => {
    await db.query(`update pgfresh.sources set api_keys = 3 where name = 'rated'`);
    expect(await free()).toBe(30);
    await db.query(`update pgfresh.sources set api_keys = 2 where name = 'rated'`);
    expect(await free()).toBe(20);
  });
});

describe('sound 7: what was called stays called', () => {
  it('also for a claim that has read the clock before another one took calls', async () => {
    const take = (count: number, at: string) =>
      scene.value<number>(
        `select cardinality(pgfresh_engine.take_slots(s, null, $1::int, pgfresh.clock() + $2::interval))
         from pgfresh.sources as s where s.name = 'rated'`,
        [count, at],
      );
    expect(await take(10, '0')).toBe(10);
    expect(await take(1, '62.1 seconds')).toBe(1);
    expect(await take(10, '61.9 seconds')).toBe(0);
    expect(await take(10, '62.1 seconds')).toBe(9);
  });

  const set = (column: string, value: number) =>
    db.query(`update pgfresh.sources set ${column} = $1::int where name = 'rated'`, [value]);

  it('when the rate goes down and up again', async () => {
    await set('rate_limit_per_minute', 20);
    await queue.enqueueMany(db, 'price', keys(100));
    const called = await claimKeys();
    await clock.advance('11 seconds');
    called.push(...(await claimKeys()));
    expect(called).toHaveLength(20);
    for (let turn = 0; turn < 2; turn++) {
      await set('rate_limit_per_minute', 10);
      await clock.advance('11 seconds');
      expect(await claimKeys()).toEqual([]);
      await set('rate_limit_per_minute', 20);
      expect(await claimKeys()).toEqual([]);
    }
    expect(
      await scene.value(
        `select next_call_at - pgfresh.clock() = interval '29 seconds' from pgfresh.source_health where source = 'rated'`,
      ),
    ).toBe(true);
    await clock.advance('29 seconds');
    expect(await claimKeys()).toHaveLength(10);
  });

  it('when API keys go and come back', async () => {
    await set('api_keys', 2);
    await queue.enqueueMany(db, 'price', keys(100));
    const called = await claimKeys();
    await clock.advance('11 seconds');
    called.push(...(await claimKeys()));
    expect(called).toHaveLength(20);
    await set('api_keys', 1);
    await set('api_keys', 2);
    await clock.advance('11 seconds');
    expect(await claimKeys()).toEqual([]);
  });

  const addAgain = async (rate: number | null) => {
    await db.query(`delete from pgfresh.data_type_registry where data_type = 'price'`);
    await db.query(`delete from pgfresh.sources where name = 'rated'`);
    await scene.source('rated', rate === null ? {} : { rate });
    await scene.type('price', 'rated', 100);
    await queue.enqueueMany(db, 'price', keys(10));
  };

  it('when the source is deleted and added again', async () => {
    await queue.enqueueMany(db, 'price', keys(10));
    expect(await claimKeys()).toHaveLength(10);
    await clock.advance('30 seconds');
    for (let turn = 0; turn < 2; turn++) await addAgain(10);
    expect(await claimKeys()).toEqual([]);
    await clock.advance('31.999 seconds');
    expect(await claimKeys()).toEqual([]);
    await clock.advance('1 millisecond');
    expect(await claimKeys()).toHaveLength(10);
  });

  it('when the source is added again and had no rate before, since nobody counted', async () => {
    await addAgain(null);
    await clock.advance('2 minutes');
    expect(await claimKeys()).toHaveLength(10);
    await addAgain(10);
    await clock.advance('61.999 seconds');
    expect(await claimKeys()).toEqual([]);
    await clock.advance('1 millisecond');
    expect(await claimKeys()).toHaveLength(10);
  });

  it('and a worker claims no job with an API key that it does not know', async () => {
    await set('api_keys', 3);
    await queue.enqueueMany(db, 'price', keys(60));
    const old = await scene.register('old');
    await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
    await db.query(`select pgfresh_engine.serve_types($1::bigint, '{}', '{}', p_api_keys => '{"rated": 2}')`, [old]);
    const apiKeys = async () => (await scene.claim()).map(({ apiKey }) => Number(apiKey)).toSorted((a, b) => a - b);
    expect(await apiKeys()).toEqual([...Array<number>(5).fill(1), ...Array<number>(5).fill(2)]);
    await clock.advance('10 seconds');
    expect(await apiKeys()).toEqual([...Array<number>(5).fill(1), ...Array<number>(5).fill(2)]);
    await clock.advance('10 seconds');
    expect(await apiKeys()).toEqual([]);
    await scene.register('new');
    await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
    expect(await apiKeys()).toEqual(Array(10).fill(3));
  });
});

it('is spread over the minute, so that who begins to look finds some', async () => {
  await scene.source('wide', { rate: 300, viewedShare: 0.2 });
  await scene.type('bond', 'wide');
  await queue.enqueueMany(db, 'bond', keys(200, 'nobody '), { priority: -1 });
  await queue.enqueueMany(db, 'bond', keys(200, 'viewed '), { priority: 1 });
  expect(await claimKeys(300)).toHaveLength(56);
  await clock.advance('9.999 seconds');
  expect(await claimKeys(300)).toEqual([]);
  expect(
    await scene.value(
      `select next_call_at - pgfresh.clock() = interval '1 ms' from pgfresh.source_health where source = 'wide'`,
    ),
  ).toBe(true);
  await clock.advance('1 millisecond');
  expect(await claimKeys(300)).toHaveLength(56);
  // Background work leaves its share of every ten seconds, too.
  await db.query(`select pgfresh.cancel_queue_jobs(p_source => 'wide', p_status => 'pending')`);
  await clock.advance('10 seconds');
  await queue.enqueueMany(db, 'bond', keys(200, 'again '), { priority: -1 });
  expect(await claimKeys(300)).toHaveLength(45);
});

it('and a quota both hold: a claim takes what each of them allows', async () => {
  await db.query(
    `update pgfresh.sources set quota_bytes = 1000, quota_window = '1 day', quota_buffer = 1 where name = 'rated'`,
  );
  await queue.enqueueMany(db, 'price', keys(20));
  // Half of the quota may be used at once, and a job takes 100 bytes.
  expect(await claimKeys()).toHaveLength(5);
  expect(await free()).toBe(5);
});

it('is taken only for what the claim takes, when other sources have more urgent jobs', async () => {
  await queue.enqueueMany(db, 'price', keys(5, 'rated '), { priority: 1 });
  await queue.enqueueMany(db, 'quote', keys(4, 'free '), { priority: 9 });
  expect(await claimKeys(5)).toEqual([...keys(4, 'free '), 'rated 0']);
  expect(await free()).toBe(9);
});

it('costs a source without a limit nothing: no row is read or locked for it', async () => {
  await queue.enqueueMany(db, 'quote', ['A', 'B']);
  await db.query(`delete from pgfresh.data_type_registry where data_type = 'price'`);
  await db.query(`delete from pgfresh.sources where name = 'rated'`);
  await db.transact('claim', async (tx) => {
    expect(await tx.query('select * from pgfresh_engine.claim_jobs(null, gen_random_uuid(), 5)')).toHaveLength(2);
    const locks = await tx.query<{ name: string }>(
      `select coalesce(relation::regclass::text, locktype) as name from pg_locks where pid = pg_backend_pid() and (locktype = 'advisory' or relation::regclass::text ~ 'rate_slot|source_place|source_state')`,
    );
    expect(locks).toEqual([]);
  });
});

it('sound 2: a claim gets nothing, and no error, where the calls that are left are too few for the job', async () => {
  const own = await QueueScene.open();
  await own.source('narrow', { rate: 3 });
  await own.source('other', { rate: 3 });
  await own.type('redirected', 'narrow');
  await own.type('plain', 'other');
  await own.queue.enqueueMany(own.db, 'redirected', ['A', 'B']);
  await own.db.query(`update pgfresh_engine.job set needs = 2`);
  expect(await own.claim()).toHaveLength(1);
  expect(await own.claim()).toEqual([]);
  await own.queue.enqueueMany(own.db, 'plain', ['A']);
  expect((await own.claim()).map(({ key }) => key)).toEqual(['A']);
});

it('sound 2: a job for which too few calls are left is not overtaken by one of fewer calls, and gets them in the end', async () => {
  await queue.enqueueMany(db, 'price', ['first'], { priority: 1 });
  await db.query(`update pgfresh_engine.job set needs = 8`);
  expect(await claimKeys()).toEqual(['first']);
  expect(await free()).toBe(2);
  await queue.enqueueMany(db, 'price', ['of eight calls'], { priority: 1 });
  await db.query(`update pgfresh_engine.job set needs = 8 where key = 'of eight calls'`);
  await queue.enqueueMany(db, 'price', keys(2, 'of one call '), { priority: 1 });
  expect(await claimKeys()).toEqual([]);
  await clock.advance('2 minutes');
  expect(await claimKeys()).toEqual(['of eight calls', ...keys(2, 'of one call ')]);
  expect(await free()).toBe(0);
});
