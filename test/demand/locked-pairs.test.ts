import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Queryable } from '../../src/database/index.ts';
import { NodeDemand } from '../../src/demand/index.ts';
import { Events } from '../../src/events/index.ts';
import { openSession } from '../harness/session.ts';
import { PlannerScene } from '../planner/scene.ts';
import { RegistryScene } from '../registry/scene.ts';

let scene: RegistryScene;
beforeAll(async () => {
  scene = await RegistryScene.open();
  await scene.db.query('create table profile (key text primary key, fetched_at timestamptz)');
});

let quote: number;
let news: number;
let demand: NodeDemand;

beforeEach(async () => {
  await scene.db.query(`
    delete from pgfresh.data_type_registry; delete from pgfresh_engine.process where kind = 'gateway'; delete from pgfresh_engine.viewer_calls; delete from public.mirror;
    update pgfresh_engine.planner_state set demand_held_until = null`);
  await scene.clock.set('2026-01-05T12:00:00Z');
  quote = await scene.add('quote');
  news = await scene.add('news', { table_name: 'profile' });
  demand = new NodeDemand({ db: scene.db, events: new Events(), nodeName: 'gateway' });
  await demand.renew();
});

const enqueue = (db: Queryable, keys: readonly string[], type = 'quote') =>
  db.query<{ key: string; result: string; job_id: number | null }>(
    'select key, result, job_id from pgfresh_engine.queue_refreshes($1::text, $2::text[]) order by key',
    [type, keys],
  );
const viewers = (type: number) =>
  scene.value<string[]>(
    `array(select key || ' ' || viewers from pgfresh_engine.pairs where type_id = $1::int and viewers > 0 order by key)`,
    [type],
  );
const manyKeys = (count: number) => Array.from({ length: count }, (_, n) => `K${String(n).padStart(5, '0')}`);
const secondTick = async () => {
  await scene.clock.advance('1 second');
  await scene.tick();
};

/** How an application's transaction can have a pair: it was there before, or the transaction has added it. */
const ways: [string, (keys: readonly string[]) => Promise<void>][] = [
  ['has enqueued a pair that was there', (keys) => demandedBefore(keys)],
  ['has enqueued a pair that is new', async () => {}],
];

/** Pairs that are there, without viewers and jobs. */
async function demandedBefore(keys: readonly string[]): Promise<void> {
  await scene.db.query('insert into pgfresh_engine.pairs (type_id, key) select $1::int, unnest($2::text[])', [
    quote,
    keys,
  ]);
}

describe.each(ways)('sound 8: while an open transaction %s', (_, prepare) => {
  it('nobody waits: gateway, viewers, tick and other applications', async () => {
    await prepare(['A']);
    await scene.db.transact('open', async (tx) => {
      await enqueue(tx, ['A']);
      const since = performance.now();
      demand.set(quote, 'A', 2);
      demand.set(quote, 'B', 1);
      demand.set(news, 'A', 1);
      await demand.flush();
      expect(await scene.subscribe('ann', 'A')).toEqual({ result: 'subscribed', data_type: 'quote', key: 'A' });
      await scene.db.query(`select pgfresh_engine.want_pairs('{quote,quote,news}', '{A,C,C}', true)`);
      await scene.tick();
      expect([await viewers(quote), await viewers(news)]).toEqual([['B 1'], ['A 1']]);
      expect(await scene.queued('news')).toEqual(['A', 'C']);
      expect(await enqueue(scene.db, ['A', 'D'])).toMatchObject([
        { key: 'A', result: 'busy', job_id: null },
        { key: 'D', result: 'queued' },
      ]);
      expect(performance.now() - since).toBeLessThan(5_000);
    });
    // It is committed, and its job serves them; the planner comes back to the count.
    await secondTick();
    expect(await viewers(quote)).toEqual(['A 3', 'B 1']);
    expect(await scene.queued()).toEqual(['A', 'B', 'C', 'D']);
  });

  it('that is undone, the pair is planned for its viewers soon after', async () => {
    await prepare(['A']);
    await scene.db
      .transact('open', async (tx) => {
        await enqueue(tx, ['A']);
        await scene.subscribe('ann', 'A');
        await scene.tick();
        throw new Error('undone');
      })
      .catch(() => {});
    expect(await scene.queued()).toEqual([]);
    await secondTick();
    expect([await viewers(quote), await scene.queued()]).toEqual([['A 1'], ['A']]);
  });

  it('those who came and left meanwhile are not counted, in whatever order that is heard of', async () => {
    await prepare(['A']);
    await scene.db.transact('open', async (tx) => {
      await enqueue(tx, ['A']);
      for (const user of ['ann', 'ben', 'cid']) await scene.subscribe(user, 'A');
      await scene.tick();
      await scene.leave('ann', 'A');
      await scene.tick();
      await scene.leave('ben', 'A');
    });
    await scene.tick();
    expect(await viewers(quote)).toEqual(['A 1']);
    await scene.leave('cid', 'A');
    await secondTick();
    expect([
      await viewers(quote),
      await scene.value('(select count(*)::int from pgfresh_engine.demand_waiting)'),
    ]).toEqual([[], 0]);
  });

  it('6,000 such pairs do not stop demand of other types, and come back after it', async () => {
    const keys = manyKeys(6_000);
    await prepare(keys);
    await scene.db.transact('open', async (tx) => {
      await enqueue(tx, keys);
      for (const key of keys) demand.set(quote, key, 1);
      await demand.flush();
      demand.set(news, 'A', 1);
      demand.set(quote, 'B', 1);
      await demand.flush();
      const since = performance.now();
      for (let n = 0; n < 2; n++) await secondTick();
      expect(performance.now() - since).toBeLessThan(10_000);
      expect([await viewers(news), await scene.queued('news')]).toEqual([['A 1'], ['A']]);
    });
    for (let n = 0; n < 12; n++) await secondTick();
    expect(await viewers(quote)).toHaveLength(6_001);
  });

  it('a prerequisite does not make the tick wait', async () => {
    const profile = await scene.add('profile', { table_name: 'profile' });
    await scene.change('quote', { depends_on: ['profile'] });
    await scene.db.query('insert into pgfresh_engine.pairs (type_id, key) select $1::int, $2::text', [profile, 'B']);
    await scene.db.transact('open', async (tx) => {
      await enqueue(tx, ['A', 'B'], 'profile');
      for (const key of ['A', 'B', 'C']) demand.set(quote, key, 1);
      demand.set(news, 'A', 1);
      await demand.flush();
      await scene.tick();
      expect([await scene.queued('profile'), await scene.queued('news')]).toEqual([['C'], ['A']]);
    });
    expect(await scene.queued('profile')).toEqual(['A', 'B', 'C']);
  });
});

it('sound 8: an open transaction that removes a data type stops only its own counts', async () => {
  await scene.db
    .transact('open', async (tx) => {
      await tx.query(`delete from pgfresh.data_type_registry where data_type = 'quote'`);
      demand.set(quote, 'A', 1);
      demand.set(news, 'A', 1);
      await demand.flush();
      await scene.tick();
      expect(await viewers(news)).toEqual(['A 1']);
      throw new Error('undone');
    })
    .catch(() => {});
  await demand.flush(performance.now() + 6_000);
  await scene.tick();
  expect(await viewers(quote)).toEqual(['A 1']);
});

it('sound 8: of pairs of which some are being added, the others are made', async () => {
  const keys = manyKeys(300);
  const locked = keys.filter((_, n) => n % 50 === 7);
  await scene.db.transact('open', async (tx) => {
    await enqueue(tx, locked);
    const since = performance.now();
    expect(
      (await scene.value<string[]>('pgfresh_engine.make_pairs($1::int, $2::text[])', [quote, keys])).toSorted(),
    ).toEqual(locked);
    expect(performance.now() - since).toBeLessThan(2_000);
    expect(await scene.value('(select count(*)::int from pgfresh_engine.pairs where type_id = $1::int)', [quote])).toBe(
      294,
    );
    const results = await enqueue(scene.db, keys);
    expect(results.filter(({ result }) => result === 'busy').map(({ key }) => key)).toEqual(locked);
    expect(results.filter(({ result }) => result === 'queued')).toHaveLength(294);
  });
});

// Two inserts of different pairs wait for each other while the table is extended. That lock cannot be held from SQL, so a
// trigger fails as a wait for it does.
it('sound 8: a new pair that waited only for room in the table is enqueued', async () => {
  await scene.db.query(`
    create sequence public.attempts;
    create function public.no_room() returns trigger language plpgsql as $$
    begin
      if nextval('public.attempts') <= 3 then
        raise lock_not_available using message = 'canceling statement due to lock timeout';
      end if;
      return new;
    end $$;
    create trigger no_room before insert on pgfresh_engine.pairs for each row when (new.key = 'B')
    execute function public.no_room()`);
  try {
    expect(await enqueue(scene.db, ['A', 'B', 'C'])).toMatchObject([
      { key: 'A', result: 'queued' },
      { key: 'B', result: 'queued' },
      { key: 'C', result: 'queued' },
    ]);
  } finally {
    await scene.db.query('drop function public.no_room() cascade; drop sequence public.attempts');
  }
});

it('sound 16: more changes of a count than an int can hold are added up', async () => {
  await scene.db.query(
    'insert into pgfresh_engine.pairs (type_id, key, viewers, demanded) values ($1::int, $2::text, 5, true)',
    [quote, 'A'],
  );
  await scene.db.query(
    `insert into pgfresh_engine.demand_change (type_id, key, delta) select $1::int, 'A', 2147483647 from generate_series(1, 3)`,
    [quote],
  );
  // Also those that wait because their pair is locked.
  await scene.db.transact('stranger', async (tx) => {
    await tx.query(`select from pgfresh_engine.pairs where key = 'A' for update`);
    await scene.tick();
  });
  await scene.db.query(`insert into pgfresh_engine.demand_change (type_id, key, delta) values ($1::int, 'A', 1)`, [
    quote,
  ]);
  await scene.tick();
  expect(await viewers(quote)).toEqual(['A 2147483647']);
  await scene.db.query(
    `insert into pgfresh_engine.demand_change (type_id, key, delta) select $1::int, 'A', -2147483647 from generate_series(1, 3)`,
    [quote],
  );
  await scene.tick();
  expect(await viewers(quote)).toEqual([]);
});

it('sound 8: an open transaction that subscribed to a pair with a job keeps neither its end nor recovery waiting', async () => {
  await enqueue(scene.db, ['A', 'B']);
  await scene.db.query(`update pgfresh_engine.job set lost = 2 where key = 'B'`);
  const claimed = await scene.db.query<{ id: number; attempt: number; key: string }>(
    `select id, attempt, key from pgfresh_engine.claim_jobs(pgfresh_engine.register_process('worker', 'lost'), gen_random_uuid(), 2)`,
  );
  const one = claimed.find(({ key }) => key === 'A')!;
  await scene.db.transact('open', async (tx) => {
    await scene.subscribe('ann', 'A', 'quote', tx);
    await scene.subscribe('ann', 'B', 'quote', tx);
    await tx.query(`set local pgfresh.user_id = 'ann'; select pgfresh.check_and_queue_stale_batch('A', '{quote}')`);
    const soon = await openSession(scene.url);
    await soon.query(`set lock_timeout = '1s'`);
    await soon.query('select pgfresh.complete_queue_job($1::bigint, 10, $2::int)', [one.id, one.attempt]);
    await soon.query(
      `update pgfresh_engine.process set lease_until = pgfresh.clock() where name = 'lost';
       update pgfresh_engine.recovery set ran_at = pgfresh.clock(), trust_leases_from = '-infinity'`,
    );
    await scene.clock.advance('1 second');
    await soon.query('select pgfresh.recover_stuck_jobs()');
  });
  expect(await scene.value(`array(select key from pgfresh_engine.job)`)).toEqual([]);
  // Its viewer is counted all the same.
  await secondTick();
  expect(await viewers(quote)).toEqual(['A 1', 'B 1']);
});

it('sound 14: data types whose common table of keys is locked delay a demand flush once, not once each', async () => {
  const planned = await PlannerScene.open();
  await planned.db.query(`create table listed (key text primary key); insert into listed values ('A')`);
  for (let n = 0; n < 40; n++)
    await planned.type(`listed_${n}`, { columns: { key_table: `'listed'`, key_table_column: `'key'` } });
  await planned.type('quote');
  const node = await planned.queue.value<number>(`pgfresh_engine.register_process('gateway', 'gateway')`);
  const other = await openSession(planned.queue.url);
  await other.query('begin; lock table listed in access exclusive mode');
  const since = performance.now();
  const { changed, refused } = await planned.queue.value<{ changed: number; refused: unknown[] }>(
    `(select pgfresh_engine.set_node_demand($1::bigint, array_agg(type_id), array_agg('A'::text), array_agg(1)) from pgfresh.data_type_registry)`,
    [node],
  );
  expect([changed, refused.length]).toEqual([1, 40]);
  // Forty waits of 100 ms would be four seconds.
  expect(performance.now() - since).toBeLessThan(3_000);
  await other.query('rollback');
});
