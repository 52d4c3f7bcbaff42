import { describe, expect, test, vi } from 'vitest';
import { Events, type PgfreshEvent } from '../../src/events/index.ts';
import { Planner, sweepJob } from '../../src/planner/index.ts';
import { openSession } from '../harness/session.ts';
import { PlannerScene } from './scene.ts';

// Long enough for everything that is well, also on a busy machine.
const limits = { statementMs: 800, lockMs: 50 };
const keys = ['A', 'B', 'C'];
const others = ['above', 'quote', 'zebra'];
const { signal } = new AbortController();

interface Trouble {
  readonly columns: Readonly<Record<string, string>>;
  /** Begins, and returns what ends it. */
  readonly begin: (scene: PlannerScene) => Promise<() => Promise<unknown>>;
}

const planted = async (scene: PlannerScene) => {
  await scene.db.query('insert into public.trouble values (true)');
  return () => scene.db.query('delete from public.trouble');
};

/** What the tables and functions of one data type may do to all others. */
const troubles: Readonly<Record<string, Trouble>> = {
  'a gate that hangs': { columns: { gate_function: `'hangs'` }, begin: planted },
  'a staleness function that loops': { columns: { staleness_function: `'loops'` }, begin: planted },
  'a lock on its table': {
    columns: {},
    begin: async (scene) => {
      const other = await openSession(scene.queue.url);
      await other.query('begin');
      await other.query('lock table bad in access exclusive mode');
      return () => other.query('rollback');
    },
  },
};

/** The bad type is between the others. */
async function opened({ columns }: Trouble): Promise<PlannerScene> {
  const scene = await PlannerScene.open();
  await scene.db.query(`
    create table public.trouble (planted boolean);
    grant select on public.trouble to pgfresh_evaluator;
    create function public.hangs(text, text) returns boolean language plpgsql stable as $$
      begin if exists (select from public.trouble) then perform pg_sleep(60); end if; return true; end $$;
    create function public.loops(timestamptz, interval) returns boolean language plpgsql stable as $$
      begin if exists (select from public.trouble) then loop null; end loop; end if; return true; end $$`);
  for (const name of ['above', 'bad', 'quote', 'zebra']) {
    await scene.type(name, name === 'bad' ? { columns } : {});
    await scene.rows(name, keys, '1 hour');
    await scene.look(name, keys);
  }
  return scene;
}

const open = async (scene: PlannerScene, type: string) =>
  (await scene.open()).filter((job) => job.startsWith(`${type} `)).length;
const quarantined = async (scene: PlannerScene) =>
  (await scene.db.query<{ name: string }>('select data_type as name from pgfresh_engine.quarantined_types()')).map(
    ({ name }) => name,
  );
const watched = (scene: PlannerScene, tickMs: number) => {
  const events = new Events();
  const seen: PgfreshEvent[] = [];
  events.subscribe((event) => seen.push(event));
  return { planner: new Planner({ db: scene.db, events, tickMs, limits }), seen };
};

describe.each(Object.entries(troubles))('%s', (_name, trouble) => {
  test('sound 14: the others are planned within the same tick, and the second one quarantines it', async () => {
    const scene = await opened(trouble);
    const end = await trouble.begin(scene);
    const { planner, seen } = watched(scene, 60_000);
    await planner.tick();
    for (const type of others) expect(`${type} ${await open(scene, type)}`).toBe(`${type} 3`);
    expect(await open(scene, 'bad')).toBe(0);
    expect(await quarantined(scene)).toEqual([]);

    await scene.clock.advance('1 second');
    await planner.tick();
    expect(await quarantined(scene)).toEqual(['bad']);
    await scene.finish('fresh');
    await scene.clock.advance('2 minutes');
    await scene.db.query(`update pgfresh_engine.type_timeout set last_at = pgfresh.clock()`);
    // From now on nobody waits for it.
    await planner.tick();
    for (const type of others) expect(`${type} ${await open(scene, type)}`).toBe(`${type} 3`);
    expect(seen.filter(({ type }) => type === 'planner.failed')).toEqual([]);
    await end();
    await planner.stop();
  });

  test('sound 14: the others are swept, and the sweep goes on behind it', async () => {
    const scene = await opened(trouble);
    await scene.db.query('select pgfresh_engine.fold_demand(pgfresh.clock())');
    const end = await trouble.begin(scene);
    const sweep = sweepJob({ db: scene.db, events: new Events(), limits });
    expect(await sweep({ signal })).toMatchObject({ message: 'all pairs have had their turn', details: { queued: 9 } });
    expect(await open(scene, 'bad')).toBe(0);
    // One sweep waits for it once.
    expect(await scene.queue.value('(select sum(timeouts)::int from pgfresh_engine.type_timeout)')).toBe(1);
    await end();
    await scene.clock.advance('61 seconds');
    await scene.db.query(`update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()`);
    expect(await sweep({ signal })).toMatchObject({ details: { queued: 3 } });
  });

  test('sound 14: it is planned again within two seconds after its release', async () => {
    const scene = await opened(trouble);
    const end = await trouble.begin(scene);
    const { planner, seen } = watched(scene, 1_000);
    await planner.tick();
    await scene.clock.advance('1 second');
    await planner.tick();
    expect(await quarantined(scene)).toEqual(['bad']);
    await scene.clock.advance('1 second');
    await planner.start();
    await vi.waitFor(
      async () =>
        expect(
          await scene.queue.value(`(select count(*)::int from pgfresh_engine.pairs where waits_for = 'quarantined')`),
        ).toBe(3),
      15_000,
    );
    const ticks = () => seen.filter(({ type }) => type === 'planner.ran').length;
    const before = ticks();
    await end();
    await vi.waitFor(async () => expect(await open(scene, 'bad')).toBe(3), { timeout: 15_000, interval: 20 });
    // One tick per second, and one that follows the probe at once.
    expect(ticks() - before).toBeLessThanOrEqual(4);
    expect(await quarantined(scene)).toEqual([]);
    await planner.stop();
  });
});

test('sound 14: a table of keys that is locked holds up the schedule of its own type alone', async () => {
  const scene = await PlannerScene.open();
  for (const name of ['bad', 'quote']) {
    await scene.db.query(`create table ${name}_keys (key text primary key); insert into ${name}_keys values ('A')`);
    await scene.type(name, {
      columns: {
        refresh_strategy: `'scheduled'`,
        refresh_schedule: `'0 3 * * *'`,
        key_table: `'${name}_keys'`,
        key_table_column: `'key'`,
      },
    });
    await scene.db.query('select pgfresh_engine.open_refresh_cycle($1::text, pgfresh.clock())', [name]);
  }
  const other = await openSession(scene.queue.url);
  await other.query('begin');
  await other.query('lock table bad_keys in access exclusive mode');
  const { planner } = watched(scene, 60_000);
  await planner.tick();
  expect(await scene.open()).toEqual(['quote A -1']);
  await planner.tick();
  expect(await quarantined(scene)).toEqual(['bad']);
  await other.query('rollback');
  await planner.tick();
  await vi.waitFor(async () => expect(await quarantined(scene)).toEqual([]), 15_000);
  await planner.tick();
  expect(await scene.open()).toEqual(['bad A -1', 'quote A -1']);
  await planner.stop();
});

test('sound 14: a view of keys that hangs holds up the schedule of its own type alone', async () => {
  const scene = await PlannerScene.open();
  await scene.db.query(`
    create function public.hangs() returns boolean language plpgsql volatile as $$
      begin perform pg_sleep(60); return true; end $$;
    create table public.quote_keys (key text primary key);
    insert into public.quote_keys values ('A');
    create view public.bad_keys as select key from public.quote_keys where (select public.hangs());
    grant select on public.quote_keys, public.bad_keys to pgfresh_evaluator`);
  for (const name of ['bad', 'quote']) {
    await scene.type(name, {
      columns: {
        refresh_strategy: `'scheduled'`,
        refresh_schedule: `'0 3 * * *'`,
        key_table: `'${name}_keys'`,
        key_table_column: `'key'`,
      },
    });
    await scene.db.query('select pgfresh_engine.open_refresh_cycle($1::text, pgfresh.clock())', [name]);
  }
  const { planner, seen } = watched(scene, 60_000);
  await planner.tick();
  expect(await scene.open()).toEqual(['quote A -1']);
  await planner.tick();
  expect(await quarantined(scene)).toEqual(['bad']);
  expect(seen.filter(({ type }) => type === 'planner.failed')).toEqual([]);
  await planner.stop();
});

test('sound 14: who came and went takes long, and no data type is blamed for it', async () => {
  const scene = await PlannerScene.open();
  for (const name of ['quote', 'zebra']) {
    await scene.type(name);
    await scene.rows(name, keys, '1 hour');
    await scene.look(name, keys);
  }
  // As the end of a gateway with very many viewers.
  await scene.db.query(`
    create function public.slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.5); return null; end $$;
    create trigger slow after delete on pgfresh_engine.node_demand for each statement execute function public.slow();
    select pgfresh_engine.set_node_demand(pgfresh_engine.register_process('gateway', 'gone'), array[type_id], array['D'], array[1])
    from pgfresh.data_type_registry where data_type = 'quote'`);
  await scene.clock.advance('31 seconds');
  const { planner, seen } = watched(scene, 60_000);
  await planner.tick();
  expect(await scene.open()).toHaveLength(6);
  expect(await scene.db.query('select * from pgfresh_engine.type_timeout')).toEqual([]);
  expect(await scene.queue.value(`(select count(*)::int from pgfresh_engine.process where kind = 'gateway')`)).toBe(0);
  expect(seen.filter(({ type }) => type === 'planner.failed')).toEqual([]);
  await planner.stop();
});

test('sound 14: keys that are gone and cannot be asked for again cost only their own type', async () => {
  const scene = await PlannerScene.open();
  await scene.db.query(`
    create table public.trouble (planted boolean);
    create function public.hangs() returns boolean language plpgsql volatile as $$
      begin if exists (select from public.trouble) then perform pg_sleep(60); end if; return true; end $$;
    create table public.listed (key text primary key);
    insert into public.listed values ('A');
    create view public.bad_keys as select key from public.listed where (select public.hangs());
    grant select on public.trouble, public.listed, public.bad_keys to pgfresh_evaluator`);
  await scene.type('bad', { columns: { key_table: `'bad_keys'`, key_table_column: `'key'` } });
  for (const name of ['quote', 'zebra']) await scene.type(name);
  for (const name of ['bad', 'quote', 'zebra']) await scene.look(name, ['A']);
  const { planner } = watched(scene, 60_000);
  await planner.tick();
  expect(await scene.open()).toHaveLength(3);
  // Jobs of keys that are gone are not wanted by anybody.
  await scene.db.query('delete from public.listed');
  await scene.queue.value('pgfresh.cleanup_stale_subscriptions()');
  expect(await scene.open()).toHaveLength(2);
  await scene.finish('fresh');
  await scene.db.query('insert into public.trouble values (true)');
  for (let second = 0; second < 2; second++) {
    await scene.clock.advance('6 seconds');
    await planner.tick();
  }
  expect(await quarantined(scene)).toEqual(['bad']);
  expect(await scene.queue.value('(select count(*)::int from pgfresh_engine.type_timeout)')).toBe(1);
  await scene.look('zebra', ['B']);
  const since = performance.now();
  await planner.tick();
  expect((await scene.open()).some((job) => job.startsWith('zebra B '))).toBe(true);
  const sweep = sweepJob({ db: scene.db, events: new Events(), limits });
  await scene.db.query(`update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()`);
  expect(await sweep({ signal })).toMatchObject({ message: 'all pairs have had their turn' });
  expect(performance.now() - since).toBeLessThan(15_000);
  await planner.stop();
});

test('sound 14: subscriptions are cleaned up and jobs reviewed beside a table of keys that hangs', async () => {
  const scene = await PlannerScene.open();
  await scene.db.query(`
    create table public.trouble (planted boolean);
    create function public.hangs() returns boolean language plpgsql volatile as $$
      begin if exists (select from public.trouble) then perform pg_sleep(60); end if; return true; end $$;
    create table public.listed (key text primary key);
    insert into public.listed values ('A'), ('B');
    create view public.bad_keys as select key from public.listed where (select public.hangs());
    grant select on public.trouble, public.listed, public.bad_keys to pgfresh_evaluator`);
  await scene.type('bad', { columns: { key_table: `'bad_keys'`, key_table_column: `'key'` } });
  await scene.type('quote', { columns: { key_table: `'listed'`, key_table_column: `'key'` } });
  // No one looks at the bad type.
  for (const name of ['bad', 'quote'])
    await scene.db.query(`select pgfresh_engine.queue_refreshes($1::text, array['A', 'B'])`, [name]);
  await scene.look('quote', ['A', 'B']);
  await scene.tick();
  await scene.clock.advance('10 minutes');
  await scene.db.query(`update pgfresh_engine.subscription set last_seen_at = pgfresh.clock() where key = 'A'`);
  await scene.db.query(`delete from public.listed where key = 'B'; insert into public.trouble values (true)`);
  const planner = await openSession(scene.queue.url);
  await planner.query(`set statement_timeout = '2s'`);
  const cleanUp = async () =>
    (await planner.query<{ said: object }>('select pgfresh.cleanup_stale_subscriptions() as said'))[0]!.said;
  expect(await cleanUp()).toEqual({ removed: 1, nodes: 0 });
  expect(await quarantined(scene)).toEqual([]);
  expect(await cleanUp()).toEqual({ removed: 0, nodes: 0 });
  expect(await quarantined(scene)).toEqual(['bad']);
  expect(await scene.open()).toEqual(['bad A 0', 'bad B 0', 'quote A 1']);
});

test('sound 14: types that only take too long together are not asked together again at once', async () => {
  const scene = await PlannerScene.open();
  await scene.db.query(`create function public.slow(timestamptz, interval) returns boolean language plpgsql stable as $$
    begin perform pg_sleep(0.4); return false; end $$`);
  for (const name of ['one', 'two', 'three']) {
    await scene.type(name, { columns: { staleness_function: `'slow'` } });
    await scene.rows(name, ['A'], '1 hour');
    await scene.look(name, ['A']);
  }
  let timeouts = 0;
  const db = {
    query: scene.db.query.bind(scene.db),
    transact: <T>(...given: Parameters<typeof scene.db.transact<T>>) =>
      scene.db.transact<T>(...given).catch((error: unknown) => {
        timeouts++;
        throw error;
      }),
  };
  const planner = new Planner({ db, events: new Events(), tickMs: 60_000, limits: { statementMs: 1_000, lockMs: 50 } });
  await planner.tick();
  expect(timeouts).toBe(1);
  for (let round = 0; round < 2; round++) {
    await scene.clock.advance('2 minutes');
    await planner.tick();
  }
  expect(timeouts).toBe(1);
  expect(await scene.db.query('select from pgfresh_engine.type_timeout')).toEqual([]);
  await planner.stop();
});

test('sound 14: a type that is only slow does not stay in quarantine', async () => {
  const scene = await PlannerScene.open();
  await scene.db.query(`create function public.slow(timestamptz, interval) returns boolean language plpgsql stable as $$
    begin perform pg_sleep(0.15); return true; end $$`);
  await scene.type('slow', { columns: { staleness_function: `'slow'` } });
  await scene.rows('slow', ['A'], '1 hour');
  await scene.look('slow', ['A']);
  const { planner } = watched(scene, 1_000);
  // As two locks that came and went.
  await scene.db.query(
    `select pgfresh_engine.note_type_timeout(type_id, 'read', 'a lock') from pgfresh.data_type_registry, generate_series(1, 2)`,
  );
  expect(await quarantined(scene)).toEqual(['slow']);
  await planner.start();
  await vi.waitFor(async () => expect(await quarantined(scene)).toEqual([]), { timeout: 20_000, interval: 100 });
  await planner.stop();
}, 30_000);
