import { beforeEach, describe, expect, it } from 'vitest';
import { freezeClock } from '../harness/clock.ts';
import { QueueScene } from './scene.ts';
import { calibrateSource } from '../../src/sources/index.ts';

const scene = await QueueScene.open();
const { db, queue } = scene;
const clock = await freezeClock(db, '2026-01-05T12:00:00Z');

/** A source of 1,000,000 usable bytes a day, of which half may be used at once. */
beforeEach(async () => {
  await db.query(
    'truncate pgfresh_engine.job, pgfresh_engine.pairs, pgfresh_engine.claim, pgfresh_engine.usage, pgfresh.usage_corrections, pgfresh_engine.type_stats',
  );
  await db.query(`delete from pgfresh.data_type_registry where data_type <> 'quote'`);
  await db.query(`delete from pgfresh.sources where name <> 'market'`);
  await db.query('delete from pgfresh_engine.source_past');
  await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
  await scene.source('paid', { quotaBytes: 1_000_000, window: '1 day' });
  await db.query(`update pgfresh.sources set quota_buffer = 1 where name = 'paid'`);
  await scene.type('small', 'paid', 100);
  await scene.type('large', 'paid', 400_000);
});

interface Budget {
  cap: number;
  used: number;
  reserved: number;
  free: number;
}

async function budget(): Promise<Budget> {
  const [row] = await db.query<Budget>(
    `select b.* from pgfresh.sources as s, pgfresh_engine.source_budget(s.id) as b where s.name = 'paid'`,
  );
  return row!;
}

const use = (bytes: number) =>
  db.query(`insert into pgfresh.usage_corrections (source, bytes, reason) values ('paid', $1::bigint, 'test')`, [
    bytes,
  ]);

it('reserves the estimate at the claim and settles the real size at the end', async () => {
  await queue.enqueue(db, 'large', 'A');
  const jobs = await scene.claim();
  expect(await budget()).toMatchObject({ used: 0, reserved: 400_000, free: 100_000 });
  await scene.complete(jobs, 250_000);
  expect(await budget()).toMatchObject({ used: 250_000, reserved: 0, free: 250_000 });
  expect(await db.query('select source, data_size_bytes, calls from pgfresh.api_data_usage')).toEqual([
    { source: 'paid', data_size_bytes: 250_000, calls: 1 },
  ]);
});

it('gives the reservation back when a job is put back, and counts what a failure has cost', async () => {
  await queue.enqueueMany(db, 'large', ['A', 'B'], { estimatedBytes: 200_000 });
  const [first, second] = await scene.claim();
  await queue.putBack(db, [{ ...first!, bytes: 0 }]);
  await db.query(`select pgfresh.fail_queue_job($1::bigint, 'no', p_permanent => true, p_data_size_bytes => 1200)`, [
    second!.id,
  ]);
  expect(await budget()).toMatchObject({ used: 1_200, reserved: 0 });
  // What was put back has called nobody.
  expect(await db.query('select data_size_bytes, calls from pgfresh.api_data_usage')).toEqual([
    { data_size_bytes: 1_200, calls: 1 },
  ]);
});

it.each(['succeeded', 'failed'])(
  'reserves for a refresh that was forced and runs again after one that %s',
  async (how) => {
    await queue.enqueue(db, 'large', 'A');
    const job = await scene.claimOne();
    await queue.enqueue(db, 'large', 'A', { force: true });
    if (how === 'failed') await queue.fail(db, [{ ...job, bytes: 0 }], { permanent: true });
    else await scene.complete([job], 100_000);
    const [again] = await scene.claim();
    expect(again).toMatchObject({ key: 'A', estimatedBytes: 400_000 });
    expect(await budget()).toMatchObject({ reserved: 400_000 });
  },
);

it('is claimed by band and age, together with sources that have no quota', async () => {
  for (const [type, key, priority] of [
    ['quote', '1 nobody', 0],
    ['small', '2 nobody', 0],
    ['quote', '3 viewed', 4],
    ['small', '4 viewed', 5],
    ['small', '5 viewed', 4],
    ['quote', '6 many', 900],
    ['small', '7 many', 900],
  ] as const) {
    await queue.enqueue(db, type, key, { priority });
  }
  const order: string[] = [];
  while (order.length < 7) order.push((await scene.claimOne()).key);
  // Of the source with a quota, the first of four calls goes to the viewed pair that has waited longest.
  expect(order).toEqual(['6 many', '4 viewed', '7 many', '3 viewed', '5 viewed', '1 nobody', '2 nobody']);
});

it('can be limited to types and to a size', async () => {
  const [small, large] = await Promise.all(
    ['small', 'large'].map((name) =>
      scene.value<number>('select type_id from pgfresh.data_type_registry where data_type = $1::text', [name]),
    ),
  );
  await queue.enqueue(db, 'large', 'L');
  await queue.enqueue(db, 'small', 'S');
  expect((await scene.claim({ maxBytes: 100 })).map((job) => job.key)).toEqual(['S']);
  expect(await scene.claim({ types: [small!] })).toEqual([]);
  expect((await scene.claim({ types: [large!] })).map((job) => job.key)).toEqual(['L']);
});

it('counts a lost or cancelled call at its estimate, since nobody knows what it cost', async () => {
  await queue.enqueueMany(db, 'large', ['A', 'B'], { estimatedBytes: 200_000 });
  const [first, second] = await scene.claim();
  await queue.putBack(db, [{ ...first!, bytes: 0 }], { lost: true });
  await db.query('select pgfresh.cancel_queue_jobs(array[$1::bigint])', [second!.id]);
  expect(await budget()).toMatchObject({ used: 400_000, reserved: 0 });
});

it('is 95 % of the quota over 30 days, unless the source says otherwise', async () => {
  await db.query(`insert into pgfresh.sources (name, quota_bytes) values ('usual', 3000000)`);
  const [row] = await db.query(
    `select b.cap, b.depth from pgfresh.sources as s, pgfresh_engine.source_budget(s.id) as b where s.name = 'usual'`,
  );
  expect(row).toEqual({ cap: 2_850_000, depth: 95_000 });
});

it('adds up bytes and calls', async () => {
  for (const key of ['A', 'B', 'C']) {
    await queue.enqueue(db, 'small', key);
    await scene.complete(await scene.claim(), 40);
  }
  expect(await db.query('select data_size_bytes, calls from pgfresh.api_data_usage')).toEqual([
    { data_size_bytes: 120, calls: 3 },
  ]);
});

it('counts every call that was made: redirects, failures and what was lost, and none for an answer that was known', async () => {
  const calls = () => scene.value<number>('select coalesce(sum(calls), 0)::int from pgfresh.api_data_usage');
  await queue.enqueueMany(db, 'small', ['redirected', 'cached', 'failed', 'unsent', 'lost', 'waits']);
  const jobs = Object.fromEntries((await scene.claim({ limit: 5 })).map((job) => [job.key, job]));
  const end = (key: string, bytes: number, made?: number) => {
    const { id, attempt, request } = jobs[key]!;
    return { id, attempt, request, bytes, ...(made === undefined ? {} : { calls: made }) };
  };
  await queue.complete(db, [end('redirected', 40, 3), end('cached', 0, 0)]);
  expect(await calls()).toBe(3);
  await queue.fail(db, [end('failed', 0, 2)], { error: 'timeout' });
  expect(await calls()).toBe(5);
  await queue.putBack(db, [end('unsent', 0)]);
  expect(await calls()).toBe(5);
  await queue.putBack(db, [end('lost', 0)], { lost: true });
  expect(await calls()).toBe(6);
  await db.query(`select pgfresh.cancel_queue_jobs(p_key => 'waits')`);
  expect(await calls()).toBe(6);
});

describe('the figure of the provider', () => {
  const calibrate = (bytes: number, options = {}) => calibrateSource(db, 'paid', bytes, options);

  it('is entered as a signed gap, upwards and downwards', async () => {
    await use(1_000);
    expect(await calibrate(1_250)).toMatchObject({ provider_bytes: 1_250, ledger_bytes: 1_000, gap_bytes: 250 });
    expect((await budget()).used).toBe(1_250);
    expect(await calibrate(900)).toMatchObject({ ledger_bytes: 1_250, gap_bytes: -350 });
    expect((await budget()).used).toBe(900);
    expect(await calibrate(900)).toMatchObject({ gap_bytes: 0 });
    expect(await db.query('select bytes, reason from pgfresh.usage_corrections order by id offset 1')).toEqual([
      { bytes: 250, reason: `the provider's own figure` },
      { bytes: -350, reason: `the provider's own figure` },
      { bytes: 0, reason: `the provider's own figure` },
    ]);
  });

  it('is compared with what was used since the provider counts', async () => {
    await use(5_000);
    await clock.advance('3 hours');
    await use(100);
    const gap = await calibrate(150, { since: await scene.value<Date>(`pgfresh.clock() - interval '1 hour'`) });
    expect(gap).toMatchObject({ ledger_bytes: 100, gap_bytes: 50 });
  });

  it('is only compared in a dry run', async () => {
    expect(await calibrate(70, { dryRun: true })).toMatchObject({ gap_bytes: 70, correction: null });
    expect((await budget()).used).toBe(0);
  });
});

it('is exceeded when everything is used or reserved', async () => {
  const exceeded = () => scene.value<boolean>(`pgfresh.is_quota_exceeded('paid')`);
  expect(await exceeded()).toBe(false);
  await use(999_999);
  expect(await exceeded()).toBe(false);
  await use(1);
  expect(await exceeded()).toBe(true);
  await use(-1);
  expect(await exceeded()).toBe(false);
  expect(await scene.value(`pgfresh.is_quota_exceeded('market')`)).toBe(false);
});

it('is corrected by signed entries that keep their reason and are no calls', async () => {
  await db.query(
    `insert into pgfresh.usage_corrections (source, bytes, reason) values ('paid', 500, 'the invoice of May')`,
  );
  await db.query(`insert into pgfresh.usage_corrections (source, bytes, reason) values ('paid', -200, 'a credit')`);
  expect(await db.query('select bytes, reason from pgfresh.usage_corrections order by id')).toEqual([
    { bytes: 500, reason: 'the invoice of May' },
    { bytes: -200, reason: 'a credit' },
  ]);
  expect(await db.query('select source, data_size_bytes, calls from pgfresh.api_data_usage')).toEqual([
    { source: 'paid', data_size_bytes: 300, calls: 0 },
  ]);
});

it('forgets what is older than the window, the oldest hour whole', async () => {
  await use(500_000);
  await clock.advance('24 hours');
  expect((await budget()).used).toBe(500_000);
  await clock.advance('61 minutes');
  expect((await budget()).used).toBe(0);
  // The invoice says that it was less; that is no room for more now.
  await use(-500_000);
  expect((await budget()).used).toBe(0);
});

it('is paid back by waiting when an answer was larger than its share, and at the latest when it has left the window', async () => {
  await queue.enqueue(db, 'large', 'A');
  await scene.complete(await scene.claim(), 900_000);
  await clock.advance('20 hours');
  expect(await budget()).toMatchObject({ used: 900_000, free: 16_666 });
  await clock.advance('6 hours');
  expect(await budget()).toMatchObject({ used: 0, free: 500_000 });
});

it('is not used up by a clock that is set back', async () => {
  await use(400_000);
  const { free } = await budget();
  await clock.set('2026-01-05T10:00:00Z');
  expect((await budget()).free).toBe(free);
  await clock.set('2026-01-05T12:00:00Z');
});

it('stops background work from 90 % on', async () => {
  await use(900_000);
  await queue.enqueue(db, 'small', 'background', { priority: -1 });
  await queue.enqueue(db, 'small', 'viewed', { priority: 1 });
  expect((await scene.claim()).map((job) => job.key)).toEqual(['viewed']);
  await use(-1_000);
  expect((await scene.claim()).map((job) => job.key)).toEqual(['background']);
});

describe('a large job that does not fit', () => {
  it('is passed by small ones', async () => {
    await use(700_000);
    await queue.enqueue(db, 'large', 'L', { priority: 1000 });
    await queue.enqueueMany(db, 'small', ['a', 'b'], { priority: 1 });
    expect((await scene.claim()).map((job) => job.key)).toEqual(['a', 'b']);
  });

  it('is found behind many others that do not fit either, without reading them', async () => {
    await use(700_000);
    await queue.enqueueMany(
      db,
      'large',
      Array.from({ length: 2_000 }, (_, n) => `L${n}`),
      { priority: 5 },
    );
    await queue.enqueue(db, 'small', 'behind', { priority: 1 });
    expect((await scene.claim({ limit: 10 })).map((job) => job.key)).toEqual(['behind']);
  });

  it.each([400_000, 1_800_000])(
    'of %i bytes is not starved by small ones, and they are not stopped by it',
    async (bytes) => {
      // A day's share of the window is 1,000,000 bytes; small ones would take all of it, and their viewers are many.
      await db.query(`update pgfresh.sources set quota_window = '30 days', quota_bytes = 30000000 where name = 'paid'`);
      await queue.enqueue(db, 'large', 'full', { estimatedBytes: 1_000_000 });
      await scene.complete(await scene.claim(), 1_000_000);
      await queue.enqueue(db, 'large', 'L', { priority: 1, estimatedBytes: bytes });
      const smallBefore: number[] = [];
      let key = 0;
      let minutes = 0;
      for (let arrived = false; !arrived && minutes < 60 * 24 * 10; minutes += 30) {
        await clock.advance('30 minutes');
        await queue.enqueueMany(
          db,
          'small',
          Array.from({ length: 300 }, () => `s${key++}`),
          { priority: 100 },
        );
        const jobs = await scene.claim({ limit: 400 });
        const small = jobs.filter((job) => job.key !== 'L');
        if (small.length > 0) await scene.complete(small, 100);
        smallBefore.push(small.length);
        arrived = small.length < jobs.length;
        await db.query(`select pgfresh.cancel_queue_jobs(p_data_type => 'small')`);
      }
      expect(minutes).toBeLessThan(60 * 24 * 5);
      expect(smallBefore.slice(0, 20).every((count) => count > 0)).toBe(true);
    },
  );

  it('and is saved for is claimed only by those who want its type and its size', async () => {
    const small = await scene.value<number>(`select type_id from pgfresh.data_type_registry where data_type = 'small'`);
    await queue.enqueue(db, 'large', 'full', { estimatedBytes: 500_000 });
    await scene.complete(await scene.claim(), 500_000);
    await queue.enqueue(db, 'large', 'L', { estimatedBytes: 400_000 });
    await clock.advance('11 minutes');
    expect(await scene.claim()).toEqual([]);
    await clock.advance('20 hours');
    expect(await scene.claim({ types: [small] })).toEqual([]);
    expect(await scene.claim({ maxBytes: 399_999 })).toEqual([]);
    expect((await scene.claim()).map((job) => job.key)).toEqual(['L']);
  });

  it('and is cancelled leaves what was put aside for it to the others', async () => {
    await queue.enqueue(db, 'large', 'full', { estimatedBytes: 500_000 });
    await scene.complete(await scene.claim(), 500_000);
    await queue.enqueue(db, 'large', 'L');
    await clock.advance('11 minutes');
    expect(await scene.claim()).toEqual([]);
    await db.query(`select pgfresh.cancel_queue_jobs(p_key => 'L')`);
    expect(await scene.claim()).toEqual([]);
    // Ten hours of the pace are 208,000 bytes.
    await clock.advance('10 hours');
    await queue.enqueue(db, 'small', 'fits', { estimatedBytes: 200_000 });
    expect((await scene.claim()).map((job) => job.key)).toEqual(['fits']);
  });

  it('for ever, because it is larger than the whole quota, stops nobody', async () => {
    await queue.enqueue(db, 'large', 'L', { priority: 9, estimatedBytes: 2_000_000 });
    for (let day = 0; day < 4; day++) {
      await queue.enqueueMany(db, 'small', [`a${day}`, `b${day}`], { estimatedBytes: 200_000, priority: 1 });
      const jobs = await scene.claim();
      expect(jobs.map((job) => job.key)).toEqual([`a${day}`, `b${day}`]);
      await scene.complete(jobs, 200_000);
      await clock.advance('26 hours');
    }
  });
});

it('paces the whole window: no blackout at its end, and never more than the cap in any window', async () => {
  await db.query(
    `update pgfresh.sources set quota_window = '30 days', quota_bytes = 3000000, quota_buffer = 1 where name = 'paid'`,
  );
  await db.query(`update pgfresh.data_type_registry set estimated_data_size_bytes = 2000 where data_type = 'small'`);
  const perStep: number[] = [];
  let key = 0;
  // More is wanted than there is, for 45 days, every three hours.
  for (let step = 0; step < 45 * 8; step++) {
    await queue.enqueueMany(
      db,
      'small',
      Array.from({ length: 60 }, () => `k${key++}`),
      { priority: 1 },
    );
    const jobs = await scene.claim({ limit: 200 });
    if (jobs.length > 0) await scene.complete(jobs, 2_000);
    perStep.push(jobs.length * 2_000);
    await db.query(`select pgfresh.cancel_queue_jobs(p_data_type => 'small')`);
    await clock.advance('3 hours');
  }
  const sum = (from: number, to: number) => perStep.slice(from, to).reduce((total, bytes) => total + bytes, 0);
  for (let first = 0; first + 240 <= perStep.length; first++)
    expect(sum(first, first + 240)).toBeLessThanOrEqual(3_000_000);
  // Day by day after the first burst, each has its share.
  for (let day = 2; day < 45; day++) expect(sum(day * 8, day * 8 + 8)).toBeGreaterThan(50_000);
  expect(sum(0, 240)).toBeGreaterThan(2_500_000);
}, 60_000);

describe('the estimate of a type', () => {
  const estimate = () =>
    scene.value<number>(
      `select estimated_bytes from pgfresh_engine.type_stats where type_id = (select type_id from pgfresh.data_type_registry where data_type = 'quote')`,
    );
  const answer = async (bytes: number) => {
    await queue.enqueue(db, 'quote', 'A');
    await scene.complete(await scene.claim(), bytes);
  };

  it('jumps from nothing to the first real size, then moves by a tenth', async () => {
    await answer(1_000);
    expect(await estimate()).toBe(1_000);
    await answer(2_000);
    expect(await estimate()).toBe(1_100);
    await answer(0);
    expect(await estimate()).toBe(990);
    await queue.enqueue(db, 'quote', 'B');
    expect((await scene.claim())[0]!.estimatedBytes).toBe(990);
  });

  it('truth 26: the first real size replaces an estimate that nobody has measured', async () => {
    await db.query(
      `update pgfresh.data_type_registry set estimated_data_size_bytes = 1000000 where data_type = 'quote'`,
    );
    await answer(500);
    expect(await estimate()).toBe(500);
    await answer(1_500);
    expect(await estimate()).toBe(600);
    await db.query(`update pgfresh.data_type_registry set estimated_data_size_bytes = 0 where data_type = 'quote'`);
  });

  it('learns nothing from an answer that was known already', async () => {
    await answer(1_000);
    await queue.enqueue(db, 'quote', 'A');
    const job = await scene.claimOne();
    await queue.complete(db, [{ id: job.id, attempt: job.attempt, request: job.request, bytes: 0, calls: 0 }]);
    expect(await estimate()).toBe(1_000);
  });

  it('learns from a set as from one after the other', async () => {
    const sizes = Array.from({ length: 40 }, (_, index) => 1_000 * (40 - index));
    await db.query('select pgfresh_engine.learn_size(1, $1::bigint[], 1)', [sizes]);
    expect(await estimate()).toBe(Math.round(sizes.reduce((old, size) => 0.9 * old + 0.1 * size)));
  });
});

it('goes and comes back, and what is reserved is what running jobs have reserved', async () => {
  const reserved = async () => {
    const [row] = await db.query(
      `select (select reserved from pgfresh_engine.source_state where source_id = s.id) as source,
        (select coalesce(sum(reserved), 0)::bigint from pgfresh_engine.job) as jobs
       from pgfresh.sources as s where s.name = 'paid'`,
    );
    return row;
  };
  const quota = (bytes: number | null) =>
    db.query(`update pgfresh.sources set quota_bytes = $1::bigint where name = 'paid'`, [bytes]);
  await queue.enqueueMany(db, 'large', ['A', 'B'], { estimatedBytes: 100_000 });
  const [first, second] = await scene.claim();
  await quota(null);
  expect(await reserved()).toEqual({ source: 200_000, jobs: 200_000 });
  await queue.enqueue(db, 'large', 'unmetered');
  const unmetered = await scene.claim();
  await scene.complete([first!], 5);
  await quota(1_000_000);
  expect(await reserved()).toEqual({ source: 100_000, jobs: 100_000 });
  await queue.enqueue(db, 'large', 'metered', { estimatedBytes: 50_000 });
  const metered = await scene.claim();
  expect(await reserved()).toEqual({ source: 150_000, jobs: 150_000 });
  await scene.complete([second!, ...unmetered, ...metered], 5);
  expect(await reserved()).toEqual({ source: 0, jobs: 0 });
  expect((await budget()).used).toBe(20);
});

it('is as used as before when its source is deleted and added again', async () => {
  await use(700_000);
  await queue.enqueue(db, 'small', 'runs');
  await scene.claim();
  const number = () => scene.value<number>(`select id from pgfresh.sources where name = 'paid'`);
  const before = await number();
  await db.query(`delete from pgfresh.data_type_registry where data_type in ('small', 'large')`);
  await db.query(`delete from pgfresh.sources where name = 'paid'`);
  await scene.source('paid', { quotaBytes: 1_000_000, window: '1 day' });
  await db.query(`update pgfresh.sources set quota_buffer = 1 where name = 'paid'`);
  expect(await number()).toBe(before);
  // What ran when its type was deleted counts as it was reserved.
  expect(await budget()).toMatchObject({ used: 700_100, reserved: 0 });
});

it('goes, and what waited for it does not wait any more', async () => {
  await use(1_000_000);
  await queue.enqueueMany(db, 'large', ['A', 'B']);
  expect(await scene.claim()).toEqual([]);
  await db.query(`update pgfresh.sources set quota_bytes = null where name = 'paid'`);
  expect((await scene.claim()).map((job) => job.key)).toEqual(['A', 'B']);
});

it('comes, and what was enqueued before keeps to it', async () => {
  await db.query(`update pgfresh.sources set quota_bytes = null where name = 'paid'`);
  await queue.enqueueMany(db, 'large', ['A', 'B', 'C']);
  await db.query(`update pgfresh.sources set quota_bytes = 1000000 where name = 'paid'`);
  expect((await scene.claim()).map((job) => job.key)).toEqual(['A']);
});

describe('jobs whose size nobody has said', () => {
  const keys = (count: number) => Array.from({ length: count }, (_, n) => `k${n}`);
  beforeEach(async () => {
    await scene.type('unsized', 'paid');
    await queue.enqueueMany(db, 'unsized', keys(40), { priority: 1 });
  });

  it('truth 12: are not claimed when the quota is used up', async () => {
    await use(1_000_000);
    expect(await scene.claim()).toEqual([]);
    await use(5_000_000);
    expect(await scene.claim()).toEqual([]);
  });

  it('truth 12: reserve a cautious share until the first of them is measured', async () => {
    // Half of the quota may be used at once, and a sixteenth of that is put aside for each.
    const first = await scene.claim();
    expect(first).toHaveLength(16);
    expect(await budget()).toMatchObject({ reserved: 500_000, free: 0 });
    expect(await scene.claim()).toEqual([]);
    await scene.complete(first, 100_000);
    // What was measured holds for the rest, and more than the pace allows is waited for.
    expect(await budget()).toMatchObject({ used: 1_600_000, reserved: 0 });
    expect(await scene.claim()).toEqual([]);
    await clock.advance('26 hours');
    expect((await budget()).used).toBe(0);
    const later = await scene.claim();
    expect(later.map(({ estimatedBytes }) => estimatedBytes)).toEqual([100_000, 100_000, 100_000, 100_000, 100_000]);
  });

  it('truth 12: reserve what other types of the source were measured at', async () => {
    await queue.enqueue(db, 'small', 'A', { priority: 900 });
    const small = await scene.value<number>(`select type_id from pgfresh.data_type_registry where data_type = 'small'`);
    await scene.complete(await scene.claim({ types: [small] }), 70_000);
    const jobs = await scene.claim();
    expect(new Set(jobs.map(({ estimatedBytes }) => estimatedBytes))).toEqual(new Set([70_000]));
  });
});

it('truth 8: a quota whose pace is used up says so, and until when, and nothing more is planned', async () => {
  const health = async () => {
    const [row] = await db.query<{ state: string; wait: number | null }>(
      `select state, extract(epoch from quota_until - pgfresh.clock())::float8 as wait from pgfresh.source_health where source = 'paid'`,
    );
    return row!;
  };
  const obstacle = () =>
    db.query<{ reason: string }>(
      `select o.reason from pgfresh.sources as s, pgfresh_engine.source_obstacle(s.id, pgfresh.clock()) as o where s.name = 'paid'`,
    );
  expect(await health()).toEqual({ state: 'ok', wait: null });
  await queue.enqueue(db, 'large', 'A', { estimatedBytes: 500_000 });
  await scene.complete(await scene.claim(), 500_000);
  // The smallest job of the source is 100 bytes; the pace is half of the quota a day.
  expect(await health()).toMatchObject({ state: 'quota' });
  const { wait } = await health();
  expect(wait).toBeGreaterThan(17);
  expect(wait).toBeLessThan(20);
  expect(await obstacle()).toEqual([{ reason: 'quota' }]);
  await clock.advance(`${wait} seconds`);
  expect(await health()).toMatchObject({ state: 'ok' });
  expect(await obstacle()).toEqual([]);
  // With the cap itself used up, until enough of it has left the window.
  await use(500_000);
  expect(await health()).toMatchObject({ state: 'quota' });
  await clock.advance(`${(await health()).wait! - 2} seconds`);
  expect(await health()).toMatchObject({ state: 'quota' });
  await clock.advance('2 seconds');
  expect(await health()).toMatchObject({ state: 'ok' });
});

it('sound 16: a source that was deleted is forgotten with the last row of its ledger', async () => {
  const past = () => db.query<{ name: string }>('select name from pgfresh_engine.source_past');
  const remove = async (name: string) => {
    await db.query('delete from pgfresh.data_type_registry where source = $1::text', [name]);
    await db.query('delete from pgfresh.sources where name = $1::text', [name]);
  };
  const [paid] = await db.query<{ id: number }>(`select id from pgfresh.sources where name = 'paid'`);
  await use(1_000);
  await remove('paid');
  await scene.value('pgfresh_engine.prune_usage()');
  expect(await past()).toEqual([{ name: 'paid' }]);
  await clock.advance('401 days');
  expect(await scene.value('pgfresh_engine.prune_usage()')).toBe(1);
  expect(await past()).toEqual([]);
  expect(await db.query('select from pgfresh_engine.source_state where source_id = $1::int', [paid!.id])).toEqual([]);
});
