import { expect, test } from 'vitest';
import { Planner } from '../../src/planner/index.ts';
import { shiftClock } from '../harness/clock.ts';
import { atEnd, openDatabase } from '../harness/database.ts';
import { quoteType, RefreshScene } from '../refresh/scene.ts';
import { drained, startWorker, until } from '../worker/scene.ts';

const keys = Array.from({ length: 12 }, (_, n) => `K${n}`);
const plain = {
  sourceTimestamp: undefined,
  ttl: '1s',
  rows: ({ symbol, price }: { symbol: string; price: number }) => ({ symbol, price }),
} as const;
const limit = 60;

/** A worker, a planner, a gateway's demand for every key, and a provider that knows which source it is called for. */
async function open() {
  const types = [quoteType({ ...plain, name: 'price', table: 'plain' })];
  const scene = await RefreshScene.open(types, ['limited', 'metered', 'free']);
  await scene.db.query(`create table public.profile (symbol text primary key, price numeric, fetched_at timestamptz)`);
  await scene.db.query(`create table public.newer (symbol text primary key, price numeric, fetched_at timestamptz)`);
  await scene.db.query(`create table public.symbols (symbol text primary key)`);
  await scene.db.query(`insert into public.symbols select unnest($1::text[])`, [keys]);
  await scene.db.query(
    `create function public.closed(key text, data_type text) returns boolean language sql as 'select false'`,
  );
  const clock = await shiftClock(scene.db);
  await scene.db.query(
    `update pgfresh.sources set rate_limit_per_minute = case when name = 'limited' then ${limit} end,
       quota_bytes = case when name = 'metered' then 1000000000 end where name in ('limited', 'metered')`,
  );
  scene.provider.answers.set('*', (request, response) => {
    const symbol = request.url!.split('/').at(-1);
    setImmediate(() =>
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify({ symbol, price: 1, at: '2026-01-05T12:00:00Z' })),
    );
  });
  const [price] = scene.dataTypes;
  const profile = { ...price!, name: 'profile', table: 'profile', fetcher: 'profile' };
  const worker = await startWorker(scene, {
    sources: scene.config.sources.map((source) => ({ ...source, baseUrl: `${scene.provider.url}/${source.name}` })),
    dataTypes: [...scene.dataTypes, profile],
    concurrency: 8,
  });
  const planner = new Planner({ db: openDatabase(scene.url), events: scene.events, tickMs: 50 });
  atEnd(() => planner.stop());
  await planner.start();
  const calls = (source: string) => scene.provider.asked.filter((path) => path.startsWith(`/${source}/`)).length;
  return { scene, clock, worker, calls };
}

test('contract 31: types, sources, keys and quotas change while jobs are open: no orphan, no stranded pair, no leak', async () => {
  const { scene, clock, worker, calls } = await open();
  const node = await scene.value<number>(`pgfresh_engine.register_process('gateway', 'gateway')`);
  await scene.db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
  const view = (type: string, wanted: readonly string[], viewers: number) =>
    scene.db.query(
      `select pgfresh_engine.set_node_demand($1::bigint, array_fill(r.type_id, array[cardinality($3::text[])]), $3::text[], $4::int[])
       from pgfresh.data_type_registry as r where r.data_type = $2::text`,
      [node, type, wanted, wanted.map(() => viewers)],
    );
  const change = (set: string) =>
    scene.db.query(`update pgfresh.data_type_registry set ${set} where data_type = 'price'`);
  const addProfile = () =>
    scene.db.query(
      `insert into pgfresh.data_type_registry (data_type, source, table_name, key_columns, timestamp_column, ttl, normalise) values ('profile', 'free', 'profile', '{symbol}', 'fetched_at', '1 second', 'upper')`,
    );
  /** More jobs than were open have been called for, so the next change meets open ones again. */
  const busy = () => {
    const before = scene.provider.asked.length;
    return until(() => scene.provider.asked.length > before + 3);
  };
  await addProfile();
  await view('price', keys, 1);
  await view('profile', keys.slice(0, 3), 1);
  const changes: (() => Promise<unknown>)[] = [
    () => change(`source = 'limited'`),
    () => change(`source = 'metered'`),
    () => change(`ttl = '2 seconds'`),
    () => scene.db.query(`update pgfresh.sources set quota_bytes = null where name = 'metered'`),
    () => scene.db.query(`update pgfresh.sources set quota_bytes = 1000000 where name = 'metered'`),
    () => change(`depends_on = '{profile}'`),
    () => change(`gate_function = 'closed'`),
    () => change(`gate_function = null`),
    () =>
      scene.db.query(
        `select count(*) from pgfresh_engine.queue_refreshes('profile', '{LATER}', p_run_at => pgfresh.clock() + interval '1 hour')`,
      ),
    () => scene.db.query(`delete from pgfresh.data_type_registry where data_type = 'profile'`),
    async () => {
      const orphans = `select count(*)::int from pgfresh_engine.job as j where not exists (select from pgfresh.data_type_registry as r where r.type_id = j.type_id)`;
      expect(await scene.value(`(${orphans})`)).toBe(0);
    },
    () => addProfile(),
    () => view('profile', keys.slice(0, 3), 1),
    () => change(`depends_on = '{}', ttl = '1 second'`),
    () => change(`key_table = 'symbols', key_table_column = 'symbol'`),
    () => scene.db.query(`delete from public.symbols where symbol = 'K0'`),
    // Leaving works also for what is no key any more.
    () => view('price', ['K0'], 0),
    () => scene.db.query(`insert into public.symbols values ('K0')`),
    () => view('price', ['K0'], 1),
    () => change(`table_name = 'newer'`),
    () => change(`source = 'free'`),
    () => scene.db.query(`delete from pgfresh.sources where name = 'metered'`),
    () => scene.db.query(`insert into pgfresh.sources (name, quota_bytes) values ('metered', 1000000)`),
    () => change(`source = 'metered'`),
    () => change(`source = 'limited', table_name = 'plain'`),
    () => change(`source = 'free', table_name = 'newer'`),
  ];
  for (const one of changes) {
    await one();
    await busy();
  }
  // No pair is stranded: each is fetched anew.
  const since = new Date(await clock.now());
  await until(async () => {
    const fresh = `select count(*)::int from public.newer where fetched_at > $1::timestamptz and symbol = any ($2::text[])`;
    return (await scene.value<number>(`(${fresh})`, [since, keys])) === keys.length;
  });
  expect(calls('limited')).toBeLessThanOrEqual(limit);

  // The last viewers leave while jobs wait for a worker: what they wanted is not fetched any more.
  await worker.stop();
  await until(async () => (await scene.value<number>('(select count(*)::int from pgfresh_engine.job)')) > keys.length);
  await view('price', keys, 0);
  await view('profile', keys, 0);
  await until(
    async () => (await scene.value<number>('(select count(*)::int from pgfresh_engine.pairs where viewers > 0)')) === 0,
  );
  await clock.advance('20 seconds');
  await drained(scene);
  expect(await scene.value(`(select coalesce(sum(reserved), 0)::int from pgfresh_engine.source_state)`)).toBe(0);
  expect(
    await scene.value(
      `(select count(*)::int from pgfresh_engine.pairs as p where p.job_id is not null or not exists (select from pgfresh.data_type_registry as r where r.type_id = p.type_id))`,
    ),
  ).toBe(0);
  // Each call is booked where it was made.
  const booked = await scene.db.query<{ name: string; calls: number }>(
    `select name, (select sum(u.calls)::int from pgfresh_engine.usage as u where u.source_id = s.id) as calls from pgfresh.sources as s order by name`,
  );
  for (const { name, calls: count } of booked) expect([name, count ?? 0]).toEqual([name, calls(name)]);
}, 120_000);
