import { beforeEach, describe, expect, it } from 'vitest';
import { blocked } from '../harness/blocked.ts';
import { PlannerScene } from './scene.ts';

const scene = await PlannerScene.open({ poolSize: 4 });
const { db, clock } = scene;
await scene.type('price');
await db.query(`
  create table public.gate_state (key text primary key);
  create function public.is_open(p_key text, p_data_type text) returns boolean language sql stable
    as $$ select exists (select from public.gate_state where key = p_key) $$;
  grant select on public.gate_state to pgfresh_evaluator`);
await scene.type('gated', { columns: { gate_function: `'is_open'` } });
const keys = Array.from({ length: 30 }, (_, n) => `k${String(n).padStart(2, '0')}`);

beforeEach(async () => {
  await db.query(`truncate pgfresh_engine.job, pgfresh_engine.pairs, pgfresh_engine.due, pgfresh_engine.hold, pgfresh_engine.claim, pgfresh_engine.breaker,
    pgfresh_engine.subscription, pgfresh_engine.demand_change, pgfresh_engine.usage, public.price, public.gated, public.gate_state`);
  await db.query(`delete from pgfresh.spending_stop; select pgfresh.resume_source('market')`);
  await db.query(`update pgfresh.sources set quota_bytes = null, enabled = true`);
});

const value = <T>(expression: string) => scene.queue.value<T>(expression);
const openJobs = () => value<number>('select count(*)::int from pgfresh_engine.job');
const explain = (type: string, key = 'k00') =>
  value<{ reason: string; words: string; until: string | null }>(`pgfresh.explain_pair('${type}', '${key}')`);

const obstacles: readonly (readonly [name: string, begin: string, end: string])[] = [
  [
    'a pause of five minutes that is resumed',
    `select pgfresh.pause_source('market', pgfresh.clock() + interval '5 minutes')`,
    `select pgfresh.resume_source('market')`,
  ],
  ['a pause without an end', `select pgfresh.pause_source('market')`, `select pgfresh.resume_source('market')`],
  [
    'an open breaker that is closed',
    `update pgfresh.sources set breaker_opened_at = pgfresh.clock(), paused_until = pgfresh.clock() + interval '5 minutes', paused_by = 'breaker'`,
    `update pgfresh.sources set breaker_opened_at = null, paused_until = null, paused_by = null`,
  ],
  [
    'a stop of all spending',
    `insert into pgfresh.spending_stop (reason) values ('test')`,
    `delete from pgfresh.spending_stop`,
  ],
  ['a source that is off', `update pgfresh.sources set enabled = false`, `update pgfresh.sources set enabled = true`],
  [
    'a quota that is used up',
    `update pgfresh.sources set quota_bytes = 1000000; insert into pgfresh.usage_corrections (source, bytes, reason) values ('market', 1000000, 'test')`,
    `insert into pgfresh.usage_corrections (source, bytes, reason) values ('market', -900000, 'test')`,
  ],
  [
    'a data type whose answers were refused',
    `insert into pgfresh_engine.breaker (type_id, kind, streak, opened_at, paused_until)
     select type_id, 'refused', '{}', pgfresh.clock(), pgfresh.clock() + interval '5 minutes' from pgfresh.data_type_registry where data_type = 'price'`,
    `select pgfresh.resume_source('market')`,
  ],
];

describe.each(obstacles)('%s', (_name, begin, end) => {
  it('truth 4: what it held is planned by the next tick after its end, and no look is wasted before', async () => {
    await db.query(begin);
    await scene.look('price', keys);
    await scene.tick();
    expect(await openJobs()).toBe(0);
    // Neither the tick nor the sweep looks at them in vain.
    const before = await value<string>(`select max(due_at)::text from pgfresh_engine.pairs`);
    await clock.advance('2 seconds');
    expect(await scene.tick()).toMatchObject({ more: false });
    expect(await value<string>(`select max(due_at)::text from pgfresh_engine.pairs`)).toBe(before);
    await db.query(end);
    expect(await explain('price')).toMatchObject({
      reason: 'due',
      words: "It will be queued by the planner's next tick.",
    });
    expect(await scene.tick()).toMatchObject({ queued: 30 });
    expect(await openJobs()).toBe(30);
    await scene.tick();
    expect(await value('select count(*)::int from pgfresh_engine.hold')).toBe(0);
  });
});

it('truth 4: what is held by a transaction that is still open is not forgotten when the obstacle ends', async () => {
  await db.query(`select pgfresh.pause_source('market', pgfresh.clock() + interval '5 minutes')`);
  await scene.look('price', ['k00']);
  await scene.tick();
  await db.transact('subscribe', async (tx) => {
    await tx.query(`select pgfresh.upsert_active_subscription('u2', 'k01', 'price')`);
    await db.query(`select pgfresh.resume_source('market')`);
    // Nothing else is held any more, and the tick waits for no subscriber.
    expect(await scene.tick()).toMatchObject({ queued: 1 });
    expect(await scene.tick()).not.toMatchObject({ queued: 1 });
  });
  await scene.tick();
  expect(await scene.open()).toEqual(['price k00 1', 'price k01 1']);
});

it('truth 4: what an obstacle held goes on tick by tick, as much as each takes', async () => {
  await db.query(`select pgfresh.pause_source('market')`);
  await scene.look('price', keys);
  await scene.tick();
  await db.query(`select pgfresh.resume_source('market')`);
  expect(await scene.tick(20)).toMatchObject({ queued: 20, more: true });
  expect(await scene.tick(20)).toMatchObject({ queued: 10 });
});

it('truth 4: a gate that does not say when it opens is asked every few seconds about some of what it holds', async () => {
  await scene.rows('gated', keys, '1 hour');
  await scene.look('gated', keys);
  await scene.tick();
  expect(await openJobs()).toBe(0);
  expect(await explain('gated')).toMatchObject({ reason: 'gate', until: null });
  // Twenty keys at a time, so the others have their turn in the next round.
  await db.query(`insert into public.gate_state values ('k25')`);
  await clock.advance('5 seconds');
  await scene.tick();
  expect(await openJobs()).toBe(0);
  expect(await explain('gated', 'k25')).toMatchObject({
    reason: 'due',
    words: 'Its gate has opened; the planner sees that within seconds.',
  });
  await clock.advance('5 seconds');
  await scene.tick();
  expect(await scene.open()).toEqual(['gated k25 1']);
  await db.query(`insert into public.gate_state select 'k' || to_char(n, 'FM00') from generate_series(0, 24) as n`);
  await clock.advance('4 seconds');
  await scene.tick();
  expect(await openJobs()).toBe(1);
  await clock.advance('1 second');
  await scene.tick();
  expect(await openJobs()).toBe(26);
});

it('truth 4: a closed gate that holds a round number of pairs is not taken for open', async () => {
  await scene.rows('gated', keys.slice(0, 20), '1 hour');
  await scene.look('gated', keys.slice(0, 20));
  await scene.tick();
  const looked: number[] = [];
  for (let second = 0; second < 30; second++) {
    await clock.advance('1 second');
    looked.push(Number((await scene.tick())['gated'] ?? 0));
  }
  expect(looked).toEqual(Array(30).fill(0));
});

describe('pairs whose answers were refused', () => {
  const refuse = async (count: number) => {
    const jobs = await scene.queue.claim({ limit: count });
    for (const { id } of jobs) {
      await clock.advance('1 second');
      await db.query(`select pgfresh.fail_queue_job($1::bigint, 'no price', null, true, 1, 'schema')`, [id]);
    }
    return jobs.map(({ key }) => key).toSorted();
  };
  const open = async () => (await scene.open()).map((job) => job.split(' ')[1]);
  const viewers = () => db.query('update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()');
  beforeEach(async () => {
    await db.query(
      `truncate pgfresh_engine.refused_pair; update pgfresh.data_type_registry set ttl = '7 days' where data_type = 'price'`,
    );
    await scene.look('price', keys.slice(0, 8));
    await scene.tick();
    await clock.advance('1 second');
    return () => db.query(`update pgfresh.data_type_registry set ttl = '1 minute' where data_type = 'price'`);
  });

  it('truth 4: are asked for by the next tick after a good answer has closed the breaker of their type, but only once', async () => {
    const refused = await refuse(5);
    await scene.tick();
    expect(await explain('price', refused[4])).toMatchObject({ reason: 'refused' });
    await clock.advance('5 minutes');
    await viewers();
    const [probe] = await scene.queue.claim();
    await scene.rows('price', [probe!.key]);
    await db.query(`select pgfresh.complete_queue_job($1::bigint, 1)`, [probe!.id]);
    await scene.tick();
    expect(await open()).toEqual(keys.slice(0, 8).filter((key) => key !== probe!.key));
    await scene.tick();
    expect(await value('select count(*)::int from pgfresh_engine.hold')).toBe(0);
    // The same five are refused again, and others are not: these five are at fault.
    await clock.advance('1 second');
    await db.query(
      `update pgfresh_engine.job set state = 'w', run_at = pgfresh.clock() + interval '1 hour' where not key = any ($1::text[])`,
      [refused],
    );
    expect(await refuse(5)).toEqual(refused);
    await db.query(`update pgfresh_engine.job set state = 'r', run_at = pgfresh.clock()`);
    await clock.advance('5 minutes');
    await viewers();
    const [again] = await scene.queue.claim();
    await scene.rows('price', [again!.key]);
    await db.query(`select pgfresh.complete_queue_job($1::bigint, 1)`, [again!.id]);
    await scene.tick();
    expect((await open()).filter((key) => refused.includes(key!))).toEqual([]);
    expect(await value('select count(*)::int from pgfresh_engine.hold')).toBe(0);
    // An operator who resumes the source asks for them.
    await db.query(`select pgfresh.resume_source('market')`);
    await scene.tick();
    expect((await open()).filter((key) => refused.includes(key!))).toEqual(refused);
  });

  it('truth 4: are asked for by the next tick after an operator has resumed the source, also where few were refused', async () => {
    const refused = await refuse(3);
    await db.query(`select pgfresh.resume_source('market')`);
    await scene.tick();
    expect(await open()).toEqual(keys.slice(0, 8));
    expect(refused).toHaveLength(3);
    expect(await value('select count(*)::int from pgfresh_engine.refused_pair')).toBe(0);
  });

  it('truth 4: stay alone where a single one is refused and the others are not', async () => {
    const [refused] = await refuse(1);
    await scene.rows(
      'price',
      keys.slice(0, 8).filter((key) => key !== refused),
    );
    await scene.finish('fresh');
    await scene.tick();
    expect(await open()).toEqual([]);
    expect(await explain('price', refused)).toMatchObject({ reason: 'refused' });
  });

  it('truth 3: one of them tries again after the pause, although all are held for a day', async () => {
    await refuse(8);
    // Five have paused it, and three were on their way.
    await clock.advance('5 minutes 26 seconds');
    await viewers();
    await scene.tick();
    expect(await open()).toEqual([]);
    await clock.advance('1 second');
    await scene.tick();
    expect(await open()).toHaveLength(1);
  });
});

describe('a data type that is removed while the planner looks at it', () => {
  it('waits for the planner, and the planner does not wait for it', async () => {
    await db.query(`create function public.is_old(timestamptz, interval) returns boolean language plpgsql volatile
      as $$ begin perform pg_advisory_xact_lock_shared(4711); return true; end $$`);
    await scene.type('removed', { columns: { staleness_function: `'is_old'` } });
    await scene.rows('removed', ['A'], '1 hour');
    await scene.look('removed', ['A']);
    await db.query(`select pgfresh.pause_source('market')`);
    let tick: Promise<unknown> | undefined;
    let removal: Promise<unknown> | undefined;
    await db.transact('hold', async (tx) => {
      await tx.query('select pg_advisory_xact_lock(4711)');
      tick = scene.tick();
      await blocked(db, 1);
      removal = db.query(`delete from pgfresh.data_type_registry where data_type = 'removed'`);
      await blocked(db, 2);
    });
    expect(await tick).toMatchObject({ skipped_paused: 1 });
    await removal;
    expect(
      await value(`select count(*)::int from pgfresh_engine.hold as h
      where not exists (select from pgfresh.data_type_registry as r where r.type_id = h.type_id)`),
    ).toBe(0);
  });
});
