import { describe, expect, it } from 'vitest';
import { Events } from '../../src/events/index.ts';
import { syncRegistry } from '../../src/registry/index.ts';
import { openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { expectRefusal } from '../harness/refusal.ts';
import { openSession } from '../harness/session.ts';
import { PlannerScene } from '../planner/scene.ts';
import { QueueScene } from '../queue/scene.ts';
import { until } from '../worker/scene.ts';
import { market, profile, quote, scene as configScene, wanted } from './config-scene.ts';

const keysOf = (count: number) => Array.from({ length: count }, (_, n) => `K${n}`);
const move = (scene: QueueScene, source: string) =>
  scene.db.query(`update pgfresh.data_type_registry set source = $1::text where data_type = 'quote'`, [source]);
const recover = (scene: QueueScene) => scene.db.query('select pgfresh.recover_stuck_jobs()');
const reserved = (scene: QueueScene, source: string) =>
  scene.value<number>(
    `select reserved from pgfresh_engine.source_state as s join pgfresh.sources as o on o.id = s.source_id where o.name = $1::text`,
    [source],
  );
const sourcesOfJobs = (scene: QueueScene) =>
  scene.value<number[]>('array(select distinct source_id from pgfresh_engine.job order by 1)');
const count = (scene: QueueScene, from: string) => scene.value<number>(`select count(*)::int from ${from}`);

describe('a data type that changes its source', () => {
  it('sound 3: takes its waiting and ready jobs along, and the new source limits them', async () => {
    const scene = await QueueScene.open();
    const other = await scene.source('other', { rate: 5 });
    await scene.queue.enqueueMany(scene.db, 'quote', keysOf(60));
    await scene.queue.enqueueMany(scene.db, 'quote', ['later'], { runAt: new Date(Date.now() + 3_600_000) });
    await move(scene, 'other');
    expect(await sourcesOfJobs(scene)).toEqual([other]);
    const claimed = await scene.claim();
    expect(claimed.map(({ source }) => source)).toEqual(Array.from({ length: 5 }, () => other));
  });

  it('sound 3: settles each job by the source that it was claimed for', async () => {
    const scene = await QueueScene.open();
    const first = await scene.source('first', { quotaBytes: 1_000_000 });
    const second = await scene.source('second', { quotaBytes: 1_000_000 });
    await scene.type('money', 'first', 100);
    const to = (source: string) =>
      scene.db.query(`update pgfresh.data_type_registry set source = $1::text where data_type = 'money'`, [source]);
    await scene.queue.enqueueMany(scene.db, 'money', ['A']);
    const [before] = await scene.claim();
    await to('second');
    await scene.queue.enqueueMany(scene.db, 'money', ['B']);
    const [after] = await scene.claim();
    expect([before!.source, after!.source]).toEqual([first, second]);
    expect([await reserved(scene, 'first'), await reserved(scene, 'second')]).toEqual([100, 100]);
    // What was fetched under another definition is not written; it is asked again, where the data type is now.
    await expect(scene.complete([before!, after!], 7)).rejects.toMatchObject({ code: '40001' });
    const complete = `select pgfresh.complete_queue_job($1::bigint, 7, $2::int) as done`;
    expect(await scene.db.query(complete, [before!.id, before!.attempt])).toEqual([{ done: false }]);
    expect(await scene.db.query(complete, [after!.id, after!.attempt])).toEqual([{ done: true }]);
    expect([await reserved(scene, 'first'), await reserved(scene, 'second')]).toEqual([0, 0]);
    expect(
      await scene.db.query(
        'select source_id as source, sum(bytes)::int as bytes from pgfresh_engine.usage group by 1 order by 1',
      ),
    ).toEqual([
      { source: first, bytes: 7 },
      { source: second, bytes: 7 },
    ]);
    const [again] = await scene.claim();
    expect(again).toMatchObject({ id: before!.id, source: second });
    expect(await scene.complete([again!], 7)).toEqual([again!.id]);
    expect([await reserved(scene, 'first'), await reserved(scene, 'second')]).toEqual([0, 0]);
  });

  it('sound 3: ends jobs of two sources in one call without leaving a reservation', async () => {
    const scene = await QueueScene.open();
    await scene.source('first', { quotaBytes: 1_000_000 });
    await scene.source('second', { quotaBytes: 1_000_000 });
    await scene.type('money', 'first', 100);
    await scene.queue.enqueueMany(scene.db, 'money', ['A', 'B']);
    const claimed = await scene.claim();
    // As a version before this one left it.
    await scene.db.query(
      `update pgfresh_engine.job set definition = null, source_id = (select id from pgfresh.sources where name = 'second') where key = 'B'`,
    );
    await scene.db.query(
      `update pgfresh_engine.source_state as s set reserved = 100 from pgfresh.sources as o where o.id = s.source_id and o.name in ('first', 'second')`,
    );
    expect(await scene.complete(claimed, 7)).toHaveLength(2);
    expect([await reserved(scene, 'first'), await reserved(scene, 'second')]).toEqual([0, 0]);
    expect(
      await scene.db.query('select sum(bytes)::int as bytes from pgfresh_engine.usage group by source_id'),
    ).toEqual([{ bytes: 7 }, { bytes: 7 }]);
  });

  it('sound 3: leaves nothing behind on a source that is deleted then', async () => {
    const scene = await QueueScene.open();
    const other = await scene.source('other');
    await scene.queue.enqueueMany(scene.db, 'quote', ['ready', 'running', 'failing']);
    const running = await scene.claim({ limit: 2 });
    expect(
      (await expectRefusal(scene.db.query(`delete from pgfresh.sources where name = 'market'`), 'PGF_REGISTRY_INVALID'))
        .message,
    ).toMatch(/quote/);
    await move(scene, 'other');
    await scene.db.query(`delete from pgfresh.sources where name = 'market'`);
    await scene.queue.putBack(scene.db, [{ ...running[0]!, bytes: 5 }]);
    await scene.queue.fail(scene.db, [{ ...running[1]!, bytes: 5 }], { counts: true });
    // Until they run too: by their source they are shown and cancelled.
    expect(await sourcesOfJobs(scene)).toEqual([other]);
    await scene.db.query(`update pgfresh_engine.job set run_at = pgfresh.clock() where state = 'w'`);
    const claimed = await scene.claim();
    expect(claimed.map(({ source }) => source)).toEqual([other, other, other]);
    expect(await scene.complete(claimed)).toHaveLength(3);
  });

  it.each(['unauthorized', 'forbidden', 'schema'])(
    'sound 3: and whose old source is deleted then ends what the provider refused meanwhile (%s)',
    async (outcome) => {
      const scene = await QueueScene.open();
      await scene.source('other');
      await scene.queue.enqueueMany(scene.db, 'quote', keysOf(6));
      const claimed = await scene.claim();
      await move(scene, 'other');
      await scene.db.query(`delete from pgfresh.sources where name = 'market'`);
      const ends = claimed.map(({ id, attempt, request }) => ({ id, attempt, request, bytes: 10, calls: 1 }));
      await scene.queue.fail(scene.db, ends, { outcome, error: 'refused' });
      expect(await count(scene, `pgfresh_engine.job where state = 'x'`)).toBe(0);
      expect(await scene.value('select sum(calls)::int from pgfresh_engine.usage')).toBe(6);
    },
  );

  it('sound 3: is followed by a job whose enqueue had read the old source', async () => {
    const scene = await QueueScene.open();
    const former = await scene.value<number>('select id from pgfresh.sources');
    const other = await scene.source('other');
    await scene.db.query(`update pgfresh.sources set quota_bytes = 1000000`);
    const session = await openSession(scene.url);
    await session.query('begin');
    await session.query(`select pgfresh_engine.queue_refreshes('quote', '{A,B}', p_estimated_size => 100)`);
    await move(scene, 'other');
    await session.query('commit');
    expect(await sourcesOfJobs(scene)).toEqual([former]);
    // By a claim at once, and by recovery at the latest.
    const claimed = await scene.claim({ limit: 1 });
    expect(claimed.map(({ source }) => source)).toEqual([other]);
    await recover(scene);
    expect(await sourcesOfJobs(scene)).toEqual([other]);
    expect(await scene.complete(claimed, 7)).toHaveLength(1);
    expect([await reserved(scene, 'market'), await reserved(scene, 'other')]).toEqual([0, 0]);
    await scene.db.query(`delete from pgfresh.sources where name = 'market'`);
    expect((await scene.claim()).map(({ source }) => source)).toEqual([other]);
  });

  it('sound 3: runs again on its new source when it was forced meanwhile', async () => {
    const scene = await QueueScene.open();
    const other = await scene.source('other');
    await scene.queue.enqueueMany(scene.db, 'quote', ['A']);
    const [job] = await scene.claim();
    await scene.queue.enqueue(scene.db, 'quote', 'A', { force: true });
    await move(scene, 'other');
    await scene.queue.fail(scene.db, [{ ...job!, bytes: 5 }], { permanent: true });
    expect(await sourcesOfJobs(scene)).toEqual([other]);
    expect((await scene.claim()).map(({ source }) => source)).toEqual([other]);
  });
});

describe('a data type that changes its table', () => {
  it('sound 3: is asked for again at once, and what was known of the old rows is forgotten', async () => {
    const scene = await PlannerScene.open();
    await scene.type('quote', { ttl: '1 day' });
    await scene.rows('quote', ['A', 'B', 'C'], '1 hour');
    await scene.look('quote', ['A', 'B', 'C']);
    await scene.tick();
    await scene.db.query('create table public.newer (key text primary key, fetched_at timestamptz)');
    await scene.db.query(`insert into public.newer values ('B', pgfresh.clock())`);
    await scene.db.query(`update pgfresh.data_type_registry set table_name = 'newer' where data_type = 'quote'`);
    expect(
      await scene.db.query(
        `select count(*)::int as count from pgfresh_engine.pairs where num_nonnulls(row_at, confirmed_at, next_ask_at, stale_at, empty_at) > 0`,
      ),
    ).toEqual([{ count: 0 }]);
    await scene.tick();
    expect(await scene.open()).toEqual(['quote A 1', 'quote C 1']);
  });

  it('sound 3: forgets also what a session had locked at that moment', async () => {
    const scene = await PlannerScene.open();
    await scene.type('quote', { ttl: '1 day' });
    await scene.rows('quote', ['A', 'B'], '1 hour');
    await scene.look('quote', ['A', 'B']);
    await scene.tick();
    await scene.db.query('create table public.newer (key text primary key, fetched_at timestamptz)');
    const session = await openSession(scene.queue.url);
    await session.query('begin');
    await session.query(`select from pgfresh_engine.pairs where key = 'B' for update`);
    await scene.db.query(`update pgfresh.data_type_registry set table_name = 'newer' where data_type = 'quote'`);
    await scene.tick();
    expect(await scene.open()).toEqual(['quote A 1']);
    await session.query('commit');
    await recover(scene.queue);
    await scene.tick();
    expect(await scene.open()).toEqual(['quote A 1', 'quote B 1']);
  });
});

describe('a data type that is deleted', () => {
  it('sound 9: leaves no job behind of an enqueue that was under way', async () => {
    const scene = await QueueScene.open();
    await scene.queue.enqueueMany(scene.db, 'quote', ['old', 'running']);
    await scene.claim({ limit: 1 });
    const session = await openSession(scene.url);
    await session.query('begin');
    await session.query(`select pgfresh_engine.queue_refreshes('quote', '{old,new,another}', 5)`);
    await scene.db.query(`delete from pgfresh.data_type_registry where data_type = 'quote'`);
    await session.query('commit');
    await recover(scene);
    expect([await count(scene, 'pgfresh_engine.job'), await count(scene, 'pgfresh_engine.pairs')]).toEqual([0, 0]);
    expect(await scene.db.query('select distinct status from pgfresh_engine.history_other')).toEqual([
      { status: 'cancelled' },
    ]);
  });

  it('sound 9: leaves no job behind that an earlier version has left, also one that runs', async () => {
    const scene = await QueueScene.open();
    await scene.source('metered', { quotaBytes: 1_000_000 });
    await scene.type('money', 'metered', 100);
    await scene.queue.enqueueMany(scene.db, 'money', ['A', 'B']);
    await scene.claim({ limit: 1 });
    await scene.db.query(`update pgfresh_engine.job set type_id = 4711`);
    await scene.db.query(`update pgfresh_engine.pairs set type_id = 4711`);
    await recover(scene);
    expect([await count(scene, 'pgfresh_engine.job'), await count(scene, 'pgfresh_engine.pairs')]).toEqual([0, 0]);
    expect(await reserved(scene, 'metered')).toBe(0);
  });

  it('sound 9: waits for no one who writes its demand, and leaves nothing of it behind', async () => {
    const scene = await QueueScene.open();
    const node = await scene.value<number>(`pgfresh_engine.register_process('gateway', 'gateway')`);
    const type = await scene.value<number>(`select type_id from pgfresh.data_type_registry where data_type = 'quote'`);
    const gateway = await openSession(scene.url);
    const set = (key: string, viewers: number) =>
      gateway.query(
        `select pgfresh_engine.set_node_demand($1::bigint, array[$4::int], array[$2::text], array[$3::int])`,
        [node, key, viewers, type],
      );
    await set('A', 1);
    await gateway.query('begin');
    await set('A', 2);
    const deleted = scene.db.query(`delete from pgfresh.data_type_registry where data_type = 'quote'`);
    deleted.catch(() => {});
    // As if the gateway had read the registry before.
    await gateway.query(
      `insert into pgfresh_engine.node_demand (node_id, type_id, key, viewers) select node_id, type_id, 'B', 1 from pgfresh_engine.node_demand`,
    );
    await deleted;
    await gateway.query('commit');
    await recover(scene);
    expect([await count(scene, 'pgfresh_engine.node_demand'), await count(scene, 'pgfresh_engine.pairs')]).toEqual([
      0, 0,
    ]);
    expect(await count(scene, 'pgfresh_engine.demand_change')).toBe(0);
  });

  it('sound 13: takes the ledgers in the order of ends, and keeps no tick waiting while it waits for one', async () => {
    const scene = await QueueScene.open();
    const low = await scene.source('low', { quotaBytes: 1_000_000 });
    const high = await scene.source('high', { quotaBytes: 1_000_000 });
    await scene.type('one', 'high', 100);
    await scene.type('two', 'low', 100);
    for (const type of ['one', 'two']) await scene.queue.enqueueMany(scene.db, type, ['A']);
    expect(await scene.claim()).toHaveLength(2);
    await scene.db.query(`select pgfresh.upsert_active_subscription('ann', 'B', 'one')`);
    // An end of both sources, which has the first ledger.
    const end = await openSession(scene.url);
    await end.query('begin');
    const lock = 'select from pgfresh_engine.source_state where source_id = $1::int for update';
    await end.query(lock, [low]);
    const deleted = scene.db.query(`delete from pgfresh.data_type_registry where data_type in ('one', 'two')`);
    await until(async () => (await count(scene, `pg_locks where not granted`)) > 0);
    await scene.db.query('select pgfresh_engine.plan_due_pairs()');
    await end.query(lock, [high]);
    await end.query('commit');
    await deleted;
    expect(await count(scene, 'pgfresh_engine.job')).toBe(0);
    expect([await reserved(scene, 'low'), await reserved(scene, 'high')]).toEqual([0, 0]);
  });

  it('sound 9: is needed as before when it is added again', async () => {
    const scene = await PlannerScene.open();
    await scene.type('profile');
    await scene.type('quote', { columns: { depends_on: `'{profile}'` } });
    await scene.db.query(`delete from pgfresh.data_type_registry where data_type = 'profile'`);
    await scene.type('profile');
    await scene.look('quote', ['A']);
    await scene.tick();
    expect(await scene.open()).toEqual(['profile A 1']);
  });

  it('sound 9: what failed while its prerequisite was gone is planned when that is added again', async () => {
    const scene = await PlannerScene.open();
    await scene.type('profile');
    await scene.type('quote', { columns: { depends_on: `'{profile}'` } });
    await scene.rows('profile', ['A']);
    await scene.look('quote', ['A']);
    await scene.tick();
    const [job] = await scene.queue.claim();
    await scene.db.query(`delete from pgfresh.data_type_registry where data_type = 'profile'`);
    await scene.db.query(`select pgfresh.fail_queue_job($1::bigint, 'no profile', null, true, 1, 'dependency')`, [
      job!.id,
    ]);
    await scene.db.query('delete from profile');
    await scene.tick();
    expect(await scene.open()).toEqual([]);
    await scene.type('profile');
    await scene.tick();
    expect(await scene.open()).toEqual(['profile A 1']);
  });
});

describe('a data type whose rules change', () => {
  const change = (scene: PlannerScene, set: string) =>
    scene.db.query(`update pgfresh.data_type_registry set ${set} where data_type = 'quote'`);

  it('sound 9: is planned at the next tick when it is not scheduled any more', async () => {
    const scene = await PlannerScene.open();
    await scene.db.query(`create table public.symbols (key text primary key); insert into public.symbols values ('A')`);
    const columns = {
      refresh_strategy: `'scheduled'`,
      refresh_schedule: `'0 6 * * *'`,
      key_table: `'symbols'`,
      key_table_column: `'key'`,
    };
    await scene.type('quote', { columns });
    await scene.rows('quote', ['A'], '1 hour');
    await scene.look('quote', ['A']);
    await scene.tick();
    expect(await scene.open()).toEqual([]);
    await scene.db.query(`select pgfresh_engine.open_refresh_cycle('quote', pgfresh.clock())`);
    await change(scene, `refresh_strategy = 'on-demand', refresh_schedule = null`);
    await scene.tick();
    expect(await scene.open()).toEqual(['quote A 1']);
    // The round that was open is not walked any more.
    await scene.db.query(`insert into public.symbols values ('B')`);
    await scene.db.query('select pgfresh.queue_scheduled_refreshes()');
    expect(await scene.open()).toEqual(['quote A 1']);
  });

  it('sound 9: is planned at the next tick when its TTL is shorter', async () => {
    const scene = await PlannerScene.open();
    await scene.type('quote', { ttl: '1 day' });
    await scene.rows('quote', ['A'], '1 hour');
    await scene.look('quote', ['A']);
    await scene.tick();
    await change(scene, `ttl = '1 minute'`);
    await scene.tick();
    expect(await scene.open()).toEqual(['quote A 1']);
  });

  it('sound 9: is planned at the next tick when its gate is removed', async () => {
    const scene = await PlannerScene.open();
    await scene.db.query(
      `create function public.closed(key text, data_type text) returns boolean language sql as 'select false'`,
    );
    await scene.db.query(
      `create function public.opens(key text, data_type text) returns timestamptz language sql as 'select now() + interval ''10 years'''`,
    );
    await scene.type('quote', { columns: { gate_function: `'closed'`, gate_opens_function: `'opens'` } });
    await scene.rows('quote', ['A'], '1 hour');
    await scene.look('quote', ['A']);
    await scene.tick();
    expect(await scene.open()).toEqual([]);
    await change(scene, `gate_function = null, gate_opens_function = null`);
    await scene.tick();
    expect(await scene.open()).toEqual(['quote A 1']);
  });

  it('sound 9: is planned at the next tick when it needs nothing any more', async () => {
    const scene = await PlannerScene.open();
    await scene.type('profile');
    await scene.type('quote', { columns: { depends_on: `'{profile}'` } });
    await scene.rows('quote', ['A'], '1 hour');
    await scene.look('quote', ['A']);
    await scene.tick();
    expect(await scene.open()).toEqual(['profile A 1']);
    await change(scene, `depends_on = '{}'`);
    await scene.tick();
    expect(await scene.open()).toEqual(['profile A 1', 'quote A 1']);
  });

  it('sound 9: is planned at the next tick when what it names is accepted again', async () => {
    const scene = await PlannerScene.open();
    await scene.db.query(
      `create function public.is_old(at timestamptz, ttl interval) returns boolean language sql as 'select true'`,
    );
    await scene.type('quote', { columns: { staleness_function: `'is_old'` } });
    await scene.rows('quote', ['A'], '1 hour');
    await scene.db.query(
      `create or replace function public.is_old(at timestamptz, ttl interval) returns boolean language sql as 'select 1 = 1'`,
    );
    await scene.look('quote', ['A']);
    await scene.tick();
    expect(await scene.open()).toEqual([]);
    await change(scene, 'data_type = data_type');
    await scene.tick();
    expect(await scene.open()).toEqual(['quote A 1']);
  });
});

describe('a sync', () => {
  it('sound 13: waits for no end, and no end for it', async () => {
    const { url, database } = await configScene();
    const config = { sources: [market, { name: 'second' }], dataTypes: [quote, profile] };
    await syncRegistry(database, wanted(config), new Events());
    await database.query(
      `select pgfresh_engine.queue_refreshes('quote', '{A,B}'), pgfresh_engine.queue_refreshes('profile', '{A,B}')`,
    );
    const jobs = await database.query<{ id: number; type: string }>(
      `select (j ->> 'id')::bigint as id, j ->> 'data_type' as type from jsonb_array_elements(pgfresh.get_queue_batch(10)) as j`,
    );
    const idOf = (type: string) => jobs.find((job) => job.type === type)!.id;
    const end = await openSession(url);
    // An end as a worker makes it: it has its jobs and rows, and then notes at its source what came of it.
    await end.query('begin');
    await end.query(`select from pgfresh_engine.job where id = any ($1::bigint[]) order by id for update`, [
      [idOf('quote'), idOf('profile')],
    ]);
    await end.query(`insert into public.profile values ('A', 'a', now())`);
    const changed = {
      sources: [
        { ...market, quotaBytes: '1GB', rateLimitPerMinute: 60 },
        { name: 'second', quotaBytes: '1GB' },
      ],
      dataTypes: [{ ...profile, source: 'second', table: 'profiles' }],
    } as const;
    await database.query('create table public.profiles (symbol text primary key, name text, fetched_at timestamptz)');
    const synced = syncRegistry(database, wanted(changed), new Events());
    synced.catch(() => {});
    await until(
      async () =>
        (
          await database.query(
            `select from pg_locks where relation = 'pgfresh.data_type_registry'::regclass and mode = 'ShareRowExclusiveLock' and granted`,
          )
        ).length > 0,
    );
    const failed = await end
      .query(`update pgfresh.sources set last_failure_at = now() where name in ('market', 'second')`)
      .then(() => end.query(`select pgfresh.fail_queue_job($1::bigint, 'no')`, [idOf('quote')]))
      .then(() => undefined, String);
    await end.query('commit');
    expect(failed).toBeUndefined();
    await expect(synced).resolves.toMatchObject({ types: { removed: ['quote'] } });
  });

  it('sound 9: of a login that may not write the registry does not keep a process from starting', async () => {
    const { url, database } = await configScene();
    await syncRegistry(database, wanted({ sources: [market], dataTypes: [quote] }), new Events());
    const login = await createLogin(url, 'pgfresh_worker');
    const events = new Events();
    const warnings: string[] = [];
    events.subscribe((event) => event.type === 'warning' && warnings.push(event.code));
    const absent = { ...quote, name: 'absent', table: 'absent' };
    await syncRegistry(openDatabase(login.url), wanted({ sources: [market], dataTypes: [quote, absent] }), events, {
      skipRefused: true,
    });
    expect(warnings).toEqual(['registry_differs']);
  });
});
