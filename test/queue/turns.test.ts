import { expect, it } from 'vitest';
import type { Queryable } from '../../src/database/index.ts';
import { freezeClock } from '../harness/clock.ts';
import { QueueScene } from './scene.ts';

const keys = (count: number, prefix: string) => Array.from({ length: count }, (_, n) => `${prefix}${n}`);

it.each([
  ['a source with a rate', 20, { rate: 300 }],
  ['a source with a quota', 20, { quotaBytes: 1_000_000_000 }],
  ['a source with few places', 3, { concurrency: 3 }],
  ['workers that are few', 20, {}],
  ['workers that claim one job at a time', 1, {}],
])('sound 15: no viewed pair starves for want of %s', async (_, limit, settings) => {
  const scene = await QueueScene.open();
  const { db, queue } = scene;
  const clock = await freezeClock(db);
  await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
  await scene.source('scarce', settings);
  await scene.type('price', 'scarce', 100);
  const seldom = keys(5, 'seldom ');
  await queue.enqueueMany(db, 'price', seldom, { priority: 1 });
  const claimed: string[] = [];
  let rounds = 0;
  while (!seldom.every((key) => claimed.includes(key)) && rounds < 200) {
    await queue.enqueueMany(db, 'price', keys(70, 'popular '), { priority: 8 });
    const jobs = await scene.claim({ limit });
    claimed.push(...jobs.map(({ key }) => key));
    await scene.complete(jobs, 100);
    await clock.advance('1 second');
    rounds++;
  }
  expect(claimed).toEqual(expect.arrayContaining(seldom));
  // Twenty calls, of which a quarter goes by age; without limits, after ten seconds, and by chance where claims are small.
  if (limit > 1)
    expect(rounds).toBeLessThanOrEqual(
      'rate' in settings ? 3 : limit === 3 ? 7 : Object.keys(settings).length ? 1 : 12,
    );
  expect(claimed.filter((key) => key.startsWith('popular')).length).toBeGreaterThanOrEqual(10);
});

it.each([
  ['with limits', { concurrency: 8 }, 8],
  ['without limits', {}, 20],
])('sound 15: of a source %s, viewed pairs without a row come first and take half', async (_, settings, room) => {
  const scene = await QueueScene.open();
  const { db, queue } = scene;
  await freezeClock(db);
  await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
  await scene.source('scarce', settings);
  const type = await scene.type('price', 'scarce');
  await db.query(
    `insert into pgfresh_engine.pairs (type_id, key, demanded, viewers) select $1::int, key, true, 1 from unnest($2::text[]) as key`,
    [type, keys(20, 'new ')],
  );
  await queue.enqueueMany(db, 'price', keys(20, 'known '), { priority: 900 });
  await queue.enqueueMany(db, 'price', keys(20, 'new '), { priority: 1 });
  const turns = async () => {
    const jobs = await scene.claim({ limit: 8 });
    await scene.complete(jobs);
    return jobs.filter(({ key }) => key.startsWith('new ')).length;
  };
  expect([await turns(), await turns(), await turns(), await turns(), await turns()]).toEqual([4, 4, 4, 4, 4]);
  // Where only background work is left, it takes every turn.
  await queue.enqueueMany(db, 'price', keys(20, 'nobody '), { priority: -1 });
  expect(await scene.claim({ limit: 100 })).toHaveLength(room);
});

it('sound 15: of a limited source, claims of one job at a time take turns: every fourth goes by age', async () => {
  const scene = await QueueScene.open();
  const { db, queue } = scene;
  await freezeClock(db);
  await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
  await scene.source('scarce', { concurrency: 8 });
  await scene.type('price', 'scarce');
  await queue.enqueueMany(db, 'price', keys(20, 'seldom '), { priority: 1 });
  await queue.enqueueMany(db, 'price', keys(20, 'popular '), { priority: 8 });
  const claimed: string[] = [];
  for (let call = 0; call < 16; call++) {
    const jobs = await scene.claim({ limit: 1 });
    claimed.push(...jobs.map(({ key }) => key.split(' ')[0]!));
    await scene.complete(jobs);
  }
  const round = ['seldom', 'popular', 'popular', 'popular'];
  expect(claimed).toEqual([...round, ...round, ...round, ...round]);
});

/** Buffers that a claim of ten jobs of these types reads. */
async function claimBuffers(db: Queryable, worker: number, types: readonly number[]): Promise<number> {
  const rows = await db.query<{ 'QUERY PLAN': [{ Plan: Record<string, number> }] }>(
    `explain (analyze, buffers, format json)
     select * from pgfresh_engine.claim_jobs($1::bigint, gen_random_uuid(), 10, p_types => $2::int[])`,
    [worker, types],
  );
  const { Plan: plan } = rows[0]!['QUERY PLAN'][0];
  return plan['Shared Hit Blocks']! + plan['Shared Read Blocks']!;
}

it.each([
  ['one lane', [0]],
  ['several lanes', [0, 9]],
])('sound 16: a claim of %s reads no more beside 50,000 ready jobs that it may not take', async (_, priorities) => {
  const scene = await QueueScene.open({ poolSize: 1 });
  const { db, queue } = scene;
  const worker = await scene.register();
  const served = await scene.value<number>(`select type_id from pgfresh.data_type_registry where data_type = 'quote'`);
  const other = await scene.type('page', 'market');
  await db.query('alter table pgfresh_engine.job set (autovacuum_enabled = off)');
  for (const priority of priorities) await queue.enqueueMany(db, 'quote', keys(500, `${priority} `), { priority });
  const buffers = async (types: readonly number[]) => {
    const reads: number[] = [];
    // The least: the first ones look into the catalogue, and others may have a later one do so again.
    for (let claim = 0; claim < 6; claim++) reads.push(await claimBuffers(db, worker, types));
    return Math.min(...reads);
  };
  const alone = await buffers([served]);
  await queue.enqueueMany(db, 'page', keys(50_000, ''), { priority: 9 });
  // The indexes may be a level deeper; to walk over the others would take thousands.
  expect(await buffers([served])).toBeLessThanOrEqual(alone * 1.3);
  await db.query(
    `insert into pgfresh_engine.breaker (type_id, kind, streak, opened_at, paused_until)
     values ($1::int, 'refused', '{}', pgfresh.clock(), 'infinity')`,
    [other],
  );
  expect(await buffers([served, other])).toBeLessThanOrEqual(alone * 1.3);
  expect(
    await scene.value('select count(*)::int from pgfresh_engine.job where attempt > 0 and type_id = $1::int', [other]),
  ).toBe(0);
});

it('sound 16: a claim of a source with a rate of 100,000 reads no more than one with 100', async () => {
  const scene = await QueueScene.open({ poolSize: 1 });
  const { db, queue } = scene;
  const clock = await freezeClock(db);
  const worker = await scene.register();
  await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
  const claim = (type: number, limit: number) =>
    db.query(
      'select from pgfresh_engine.claim_jobs($1::bigint, gen_random_uuid(), $2::int, p_types => array[$3::int])',
      [worker, limit, type],
    );
  const buffers = async (name: string, rate: number) => {
    await scene.source(name, { rate });
    const type = await scene.type(name, name);
    await queue.enqueueMany(db, name, keys(2_000, ''), { priority: 1 });
    // A minute in which a good part of it is called.
    for (let second = 0; second < 60; second++) {
      await claim(type, rate === 100 ? 1 : 25);
      await clock.advance('1 second');
    }
    const source = `select id from pgfresh.sources where name = '${name}'`;
    const rows = `select count(*)::int from pgfresh_engine.rate_slot where source_id = (${source})`;
    expect(await scene.value(rows)).toBeLessThanOrEqual(61);
    return claimBuffers(db, worker, [type]);
  };
  const few = await buffers('slow', 100);
  expect(await buffers('fast', 100_000)).toBeLessThanOrEqual(few * 1.5);
  // Claims of one moment are one row.
  const slots = 'select count(*)::int from pgfresh_engine.rate_slot';
  const before = await scene.value<number>(slots);
  const fast = await scene.value<number>(`select type_id from pgfresh.data_type_registry where data_type = 'fast'`);
  for (let again = 0; again < 20; again++) {
    await claim(fast, 1);
    await clock.advance('1 millisecond');
  }
  expect((await scene.value<number>(slots)) - before).toBeLessThanOrEqual(2);
});
