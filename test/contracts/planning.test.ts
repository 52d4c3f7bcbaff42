import { execFile } from 'node:child_process';
import { rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, onTestFinished, test, vi } from 'vitest';
import { Database, EmbeddedServer, migrate, readSqlFiles, type Queryable } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { Planner, sweepJob } from '../../src/planner/index.ts';
import { openDatabase } from '../harness/database.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { openSession } from '../harness/session.ts';
import { runCli } from '../harness/process.ts';
import { PlannerScene } from '../planner/scene.ts';
import { inSchema } from '../harness/schemas.ts';

const keysUpTo = (count: number): string[] => Array.from({ length: count }, (_, index) => `K${index}`);

const planners = [
  { call: 'plan_due_pairs', excludes: ['plan_due_pairs', 'check_and_queue_stale_data'] },
  { call: 'check_and_queue_stale_data', excludes: ['plan_due_pairs', 'check_and_queue_stale_data'] },
  { call: 'queue_scheduled_refreshes', excludes: ['queue_scheduled_refreshes'] },
];

test.for(planners)(
  'contract 3: of two planners at once the second is skipped, and nothing leaks after an error: $call',
  async ({ call, excludes }) => {
    const scene = await scheduledScene(['statements'], 10);
    await scene.type('quote');
    await scene.look('quote', ['A']);
    await scene.db.query(`select pgfresh_engine.open_refresh_cycle('statements', pgfresh.clock())`);
    // Sessions that stay, as those of a pool do: a lock that outlives its transaction would still be held.
    const [first, second] = [await openSession(scene.queue.url), await openSession(scene.queue.url)];
    // Whoever has to wait is refused.
    await second.query(`set lock_timeout = '500ms'`);
    const skipped = async (name: string): Promise<unknown> => {
      const [row] = await second.query<{ skipped: unknown }>(`select ${inSchema(name)}() -> 'skipped' as skipped`);
      return row!.skipped;
    };
    for (const end of ['commit', 'rollback', 'select 1 / 0']) {
      await first.query('begin');
      await first.query(`select ${inSchema(call)}()`);
      for (const name of excludes) expect([end, name, await skipped(name)]).toEqual([end, name, 'locked']);
      if (end === 'select 1 / 0') {
        await expect(first.query(end)).rejects.toThrow('division by zero');
        // The error arrives before the server has let go; what is answered next does not.
        await first.query('rollback');
      } else await first.query(end);
      for (const name of excludes) expect([end, name, await skipped(name)]).not.toContain('locked');
    }
    expect(await scene.queue.value(advisoryLocks)).toBe(0);
    expect(await scene.queue.value('(select count(*) from pgfresh_engine.job)')).toBe(
      call === 'queue_scheduled_refreshes' ? 10 : 1,
    );
  },
);

const advisoryLocks = `(select count(*) from pg_locks l join pg_database d on d.oid = l.database where locktype = 'advisory' and datname = current_database())`;

test('contract 3: nothing leaks after a killed session', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['A']);
  const first = openDatabase(scene.queue.url, { poolSize: 1 });
  let pid = 0;
  const killed = first.transact(
    'plan',
    async (tx) => {
      const [session] = await tx.query<{ pid: number }>(
        'select pg_backend_pid() as pid, pgfresh_engine.plan_due_pairs()',
      );
      pid = session!.pid;
      await scene.db.query('select pg_terminate_backend($1::int)', [pid]);
      await tx.query('select 1');
    },
    { attempts: 1 },
  );
  await expect(killed).rejects.toMatchObject({ code: 'PGF_DATABASE_LOST' });
  await vi.waitFor(async () => {
    const alive = '(select count(*) from pg_stat_activity where pid = $1::int)';
    expect(await scene.queue.value(alive, [pid])).toBe(0);
  }, 10_000);
  expect(await scene.tick()).toMatchObject({ more: false });
  expect(await scene.queue.value(advisoryLocks)).toBe(0);
});

test.for(['tick', 'sweep'] as const)(
  'contract 4: a missing table, raising functions and keys of the wrong type stop nothing else: $0',
  async (planner) => {
    const scene = await PlannerScene.open();
    await scene.type('gone');
    await scene.db.query('create table number (id int primary key, fetched_at timestamptz)');
    await scene.type('number', { columns: { key_columns: `'{id}'` } });
    await scene.db.query(`
      create function raising(timestamptz, interval) returns boolean language plpgsql as 'begin raise exception ''no''; end';
      create function choosy(at timestamptz, ttl interval) returns boolean language plpgsql as
        'begin if at = ''-infinity'' then raise exception ''no''; end if; return pgfresh.is_data_stale(at, ttl); end';
      create function closed(text, text) returns boolean language plpgsql as 'begin raise exception ''no''; end'`);
    await scene.type('raising', { columns: { staleness_function: `'raising'` } });
    await scene.type('choosy', { columns: { staleness_function: `'choosy'` } });
    await scene.type('gated', { columns: { gate_function: `'closed'` } });
    await scene.type('quote');
    await scene.db.query('drop table gone');
    await scene.rows('raising', ['A']);
    await scene.rows('gated', ['A'], '2 minutes');
    // One bad row among many: those that are fresh are not blamed with it.
    const many = keysUpTo(60);
    await scene.rows('choosy', many);
    await scene.db.query(`update choosy set fetched_at = '-infinity' where key = 'K7'`);
    for (const type of ['gone', 'raising', 'gated', 'quote']) await scene.look(type, ['A']);
    await scene.look('number', ['1', 'one', '2']);
    await scene.look('choosy', many);
    if (planner === 'tick') await scene.tick();
    else await scene.sweep();
    expect(await scene.open()).toEqual(
      ['choosy K7', 'gated A', 'number 1', 'number 2', 'number one', 'quote A', 'raising A'].map((pair) => `${pair} 1`),
    );
    // And each is told of, by its type.
    const told = (await scene.warnings()).map(({ code, subject }) => `${subject} ${code}`).toSorted();
    expect(told).toEqual(
      expect.arrayContaining([
        'choosy check_raised',
        'gated gate_raised',
        'gone type_unresolved',
        'raising check_raised',
      ]),
    );
  },
);

test('contract 4: a scheduled type whose keys cannot be read stops no other', async () => {
  const scene = await scheduledScene(['bad', 'good'], 3);
  await scene.db.query('create view keys as select symbol, 1 / (length(symbol) - 2) = 1 as active from symbols');
  await scene.db.query(
    `update pgfresh.data_type_registry set key_table = 'keys' where data_type = 'bad'; grant select on keys to pgfresh_evaluator`,
  );
  for (const type of ['bad', 'good'])
    await scene.db.query('select pgfresh_engine.open_refresh_cycle($1::text, pgfresh.clock())', [type]);
  await scene.db.query('select pgfresh.queue_scheduled_refreshes()');
  expect(await scene.open()).toEqual(['good S1 -1', 'good S2 -1', 'good S3 -1']);
  expect((await scene.warnings()).map(({ code, subject }) => `${subject} ${code}`)).toContain('bad keys_raised');
});

test('contract 8: a registry priority of 999 on a scheduled type still queues −1', async () => {
  const scene = await scheduledScene(['statements'], 10, { background_priority: '999', ui_threshold: '1000' });
  await scene.db.query(`select pgfresh_engine.open_refresh_cycle('statements', pgfresh.clock())`);
  expect(await scene.queue.value('pgfresh.queue_scheduled_refreshes()')).toMatchObject({ queued: 10, finished: 1 });
  const priorities = await scene.db.query('select distinct priority, band from pgfresh_engine.job');
  expect(priorities).toEqual([{ priority: -1, band: -1 }]);
});

test('contract 9: 50,000 keys of five scheduled types: few rows a run, never more than 1,000 waiting, and every key has its turn', async () => {
  const types = ['a', 'b', 'c', 'd', 'e'];
  const scene = await scheduledScene(types, 50_000);
  for (const type of types)
    await scene.db.query('select pgfresh_engine.open_refresh_cycle($1::text, pgfresh.clock())', [type]);
  await scene.db.query('create table done (type_id int, key text, priority int, primary key (type_id, key))');
  let [runs, mostWaiting, mostRead] = [0, 0, 0];
  for (let waiting = -1; waiting !== 0; runs++) {
    const read = await scene.db.transact('run', async (tx) => {
      const before = await rowsRead(tx, 'symbols');
      await tx.query('select pgfresh.queue_scheduled_refreshes()');
      return (await rowsRead(tx, 'symbols')) - before;
    });
    // Once more while all of them wait: there is no room.
    if (runs < 3) await scene.db.query('select pgfresh.queue_scheduled_refreshes()');
    waiting = await scene.queue.value<number>('(select count(*) from pgfresh_engine.job)');
    mostWaiting = Math.max(mostWaiting, waiting);
    mostRead = Math.max(mostRead, read);
    // As if workers had ended them, without the time that takes.
    await scene.db.query(
      'with ended as (delete from pgfresh_engine.job returning type_id, key, priority) insert into done select * from ended',
    );
  }
  // Each key is read as the next one, and looked up by the queue as one that there is.
  expect({ mostWaiting, runs }).toEqual({ mostWaiting: 1_000, runs: 251 });
  // Where few are left, all of them may be read.
  expect(mostRead).toBeLessThanOrEqual(4_010);
  const [done] = await scene.db.query('select count(*) as keys, min(priority) as low, max(priority) as high from done');
  expect(done).toEqual({ keys: 250_000, low: -1, high: -1 });
  expect(await scene.queue.value('(select count(*) from pgfresh_engine.refresh_cycle where done_at is null)')).toBe(0);
}, 60_000);

test('contract 10: on a standby every function that decides refuses, and the process says so and exits', async () => {
  const primary = await temporaryFolder('primary');
  const copy = `${primary}-standby`;
  const events = new Events();
  const server = new EmbeddedServer({ dataDir: primary, events, fsync: false });
  await server.start();
  const database = new Database({ url: server.url, events, applicationName: 'pgfresh test' });
  await migrate(database, { files: await readSqlFiles(), events });
  await database.query(`insert into pgfresh.sources (name) values ('market')`);
  await database.query('create table quote (key text primary key, fetched_at timestamptz)');
  await database.query(`insert into quote values ('A', null)`);
  await database.query(
    `insert into pgfresh.data_type_registry (data_type, source, table_name, timestamp_column, ttl, refresh_strategy, refresh_schedule, key_table, key_table_column)
     values ('quote', 'market', 'quote', 'fetched_at', '1 minute', 'scheduled', '0 3 * * *', 'quote', 'key')`,
  );
  await database.close();
  await server.stop();
  // With their owner, who is not root.
  await promisify(execFile)('cp', ['-a', primary, copy]);
  await writeFile(join(copy, 'postgres', 'standby.signal'), '');

  const standby = new EmbeddedServer({ dataDir: copy, events, fsync: false });
  onTestFinished(() => standby.stop());
  await standby.start();
  const db = openDatabase(standby.url, { poolSize: 1 });
  for (const call of [
    'plan_due_pairs()',
    'check_and_queue_stale_data()',
    'queue_scheduled_refreshes()',
    'cleanup_stale_subscriptions()',
    `open_refresh_cycle('quote', '2026-01-05')`,
    `upsert_active_subscription('ann', 'A', 'quote')`,
    `upsert_active_subscriptions('[{"data_type": "quote", "key": "A"}]')`,
    `remove_active_subscription('ann', 'A', 'quote')`,
    `check_and_queue_stale_batch('A', '{quote}')`,
    `refresh_pair('quote', 'A')`,
    `register_process('gateway', 'gateway')`,
    `serve_jobs(pgfresh_engine.register_process('scheduler', 'scheduler'), '{}', '2026a')`,
    `acquire_refresh_lock('work', 'me')`,
  ]) {
    await db.query(`select set_config('pgfresh.user_id', 'ann', false)`);
    const refused = await db.query(`select ${inSchema(call)}`).catch((error: unknown) => error);
    expect([call, refused]).toMatchObject([call, { code: 'PGF_STANDBY' }]);
  }
  const options = { cwd: copy, env: { DATABASE_URL: standby.url } };
  const { code, stderr } = await runCli(['run', '--roles', 'planner'], options);
  expect(stderr).toContain('PGF_DATABASE_STANDBY');
  expect(code).toBe(4);
  await db.close();
  await standby.stop();
  await Promise.all([primary, copy].map((folder) => rm(folder, { recursive: true, force: true })));
}, 60_000);

test('contract 10: a process clock that is off by hours changes nothing', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.rows('quote', ['FRESH'], '30 seconds');
  await scene.rows('quote', ['STALE'], '90 seconds');
  await scene.look('quote', ['FRESH', 'STALE']);
  vi.useFakeTimers({ toFake: ['Date'], now: Date.parse('2026-01-05T17:00:00Z') });
  try {
    const options = { db: scene.db, events: new Events() };
    await new Planner({ ...options, tickMs: 1_000 }).tick();
    await sweepJob(options)({ signal: new AbortController().signal });
  } finally {
    vi.useRealTimers();
  }
  expect(await scene.open()).toEqual(['quote STALE 1']);
  const [job] = await scene.db.query('select created_at = pgfresh.clock() as now from pgfresh_engine.job');
  expect(job).toEqual({ now: true });
});

test('contract 12: with 300,000 subscriptions a call reads no more than with 10,000, and writes no temporary file', async () => {
  const few = await subscribed(10_000);
  const many = await subscribed(300_000);
  const compare = async (call: string): Promise<void> => {
    const [small, large] = [await cost(few, call), await cost(many, call)];
    expect({ call, temporary: small.temporary + large.temporary }).toEqual({ call, temporary: 0 });
    expect(large.buffers, `${call}: ${small.buffers} buffers with 10,000`).toBeLessThan(small.buffers * 1.5);
    // Rows and index entries too: buffers hide a count of many small ones.
    const most = (name: string): number => Math.max((small.rows[name] ?? 0) * 1.5, 300 * 4);
    const more = Object.entries(large.rows).filter(([name, rows]) => rows > most(name));
    expect({ call, more }).toEqual({ call, more: [] });
    expect(Object.values(small.rows).some((rows) => rows >= 300)).toBe(true);
  };
  await compare('check_and_queue_stale_data');
  for (const scene of [few, many]) await scene.clock.advance('2 minutes');
  await compare('plan_due_pairs');
}, 60_000);

async function rowsRead(tx: Queryable, table: string): Promise<number> {
  const [row] = await tx.query<{ read: number }>(
    'select seq_tup_read + idx_tup_fetch as read from pg_stat_xact_user_tables where relname = $1::text',
    [table],
  );
  return row!.read;
}

/** Ten subscriptions a pair, in one type; a tenth of the pairs has no row. */
async function subscribed(subscriptions: number): Promise<PlannerScene> {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  const keys = keysUpTo(subscriptions / 10);
  await scene.rows(
    'quote',
    keys.filter((_, index) => index % 10 > 0),
  );
  for (let first = 0; first < keys.length; first += 5_000)
    await scene.look('quote', keys.slice(first, first + 5_000), 10);
  for (let left = 1; left > 0;) {
    await scene.db.query('select pgfresh_engine.fold_demand(pgfresh.clock())');
    left = await scene.queue.value<number>('(select count(*) from pgfresh_engine.demand_change)');
  }
  await scene.db.query(
    'vacuum (analyze) pgfresh_engine.pairs, pgfresh_engine.subscription, pgfresh_engine.demand_change',
  );
  // The first call of a session reads the catalog.
  await scene.db.query(`select pgfresh.explain_pair('quote', 'K1')`);
  return scene;
}

interface Cost {
  readonly buffers: number;
  readonly temporary: number;
  /** Rows and index entries that were read, by table and index. */
  readonly rows: Readonly<Record<string, number>>;
}

async function cost(scene: PlannerScene, call: string): Promise<Cost> {
  return scene.db.transact('cost', async (tx) => {
    const before = await relationReads(tx);
    const [row] = await tx.query<{ 'QUERY PLAN': [{ Plan: Record<string, number> }] }>(
      `explain (analyze, buffers, format json) select ${inSchema(call)}(300)`,
    );
    const after = await relationReads(tx);
    const plan = row!['QUERY PLAN'][0].Plan;
    const sum = (...names: string[]) => names.reduce((total, name) => total + (plan[name] ?? 0), 0);
    return {
      buffers: sum('Shared Hit Blocks', 'Shared Read Blocks'),
      temporary: sum('Temp Read Blocks', 'Temp Written Blocks'),
      rows: Object.fromEntries([...after].map(([name, rows]) => [name, rows - (before.get(name) ?? 0)])),
    };
  });
}

/** How many rows of each table and entries of each index this transaction has read. */
async function relationReads(tx: Queryable): Promise<Map<string, number>> {
  const rows = await tx.query<{ name: string; rows: number }>(
    `select relname as name, (pg_stat_get_xact_tuples_returned(oid) + pg_stat_get_xact_tuples_fetched(oid))::int as rows from pg_class
     where relkind in ('r', 'i') and relnamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace, 'public'::regnamespace)`,
  );
  return new Map(rows.map(({ name, rows: read }) => [name, read]));
}

async function scheduledScene(
  types: readonly string[],
  keys: number,
  columns: Record<string, string> = {},
): Promise<PlannerScene> {
  const scene = await PlannerScene.open();
  await scene.db.query('create table symbols (symbol text primary key, active boolean not null)');
  await scene.db.query(`insert into symbols select 'S' || n, true from generate_series(1, $1::int) as n`, [keys]);
  await scene.db.query(`insert into symbols values ('GONE', false)`);
  // Of all rows: what is known of a part of them, taken by chance, changes how the last keys are read.
  await scene.db.query('alter table symbols alter column symbol set statistics 1000');
  await scene.db.query('analyze symbols');
  const scheduled = {
    refresh_strategy: `'scheduled'`,
    refresh_schedule: `'0 3 * * *'`,
    key_table: `'symbols'`,
    key_table_column: `'symbol'`,
    key_active_column: `'active'`,
  };
  for (const type of types) await scene.type(type, { columns: { ...scheduled, ...columns } });
  return scene;
}
