import { beforeAll, describe, expect, it } from 'vitest';
import type { Config } from '../../src/config/index.ts';
import type { Database } from '../../src/database/index.ts';
import { Events, type EventOf } from '../../src/events/index.ts';
import { isEmpty, previewSync, readProblems, syncRegistry } from '../../src/registry/index.ts';
import { openDatabase } from '../harness/database.ts';
import { market, profile, quote, scene, wanted } from './config-scene.ts';

const sync = (database: Database, config: Config, events = new Events()) =>
  syncRegistry(database, wanted(config), events);
const names = async (database: Database) =>
  (await database.query<{ data_type: string }>('select data_type from pgfresh.data_type_registry order by 1')).map(
    (row) => row.data_type,
  );
const versions = (database: Database) =>
  database.query('select data_type, xmin::text from pgfresh.data_type_registry order by 1');

const everything = {
  ...quote,
  fetcher: 'market.quote',
  key: ['symbol'],
  ttlColumn: 'ttl_minutes',
  empty: { ttl: '1500ms', rows: 'delete' },
  write: { mode: 'merge', maxDeletes: 0.1 },
  staleness: 'is_old',
  schedule: { cron: '0 6 * * 1-5', zone: 'America/New_York' },
  keys: { table: 'public.symbols', column: 'symbol', active: 'listed' },
  normalise: 'upper',
  gate: 'open',
  gateOpens: 'opens',
  priority: { background: 500, uiThreshold: 1000 },
  dependsOn: ['profile'],
  estimatedBytes: '2KB',
  sourceTimestamp: 'quoted_at',
  maxRetries: 0,
  maxRun: '0.25s',
  visibility: 'rls',
} as const;

describe('a sync', () => {
  let shared: ReturnType<typeof scene>;
  beforeAll(async () => {
    shared = scene();
    await (await shared).database.query(`insert into pgfresh.sources (name) values ('market')`);
  });

  it('writes every option to its column, once', async () => {
    const { database } = await scene();
    const places = {
      apiKeys: [{ env: 'FIRST_KEY' }, { env: 'SECOND_KEY' }],
      authorize: () => ({}),
      viewedShare: 0.35,
      concurrency: 7,
      oneAtATimeAKey: true,
    };
    const quota = { quotaBytes: '20GB', quotaWindow: '1d', quotaBuffer: 0.9 } as const;
    const source = { name: 'market', rateLimitPerMinute: 300, ...quota, ...places };
    const config = { sources: [source], dataTypes: [everything, profile] };
    const diff = await sync(database, config);
    expect(diff.types.added.map(({ name }) => name)).toEqual(['quote', 'profile']);
    expect(diff.order).toEqual(['profile', 'quote']);
    const [row] = await database.query<{ row: object }>(
      `select to_jsonb(r) as row from pgfresh.data_type_registry as r where data_type = 'quote'`,
    );
    expect(row!.row).toMatchObject({
      source: 'market',
      fetcher: 'market.quote',
      table_name: 'quote',
      key_columns: ['symbol'],
      timestamp_column: 'fetched_at',
      ttl: '00:15:00',
      ttl_column: 'ttl_minutes',
      empty_ttl: '00:00:01.5',
      empty_rows: 'delete',
      max_deletes: 0.1,
      evict_after: null,
      staleness_function: 'is_old',
      refresh_strategy: 'scheduled',
      refresh_schedule: '0 6 * * 1-5',
      schedule_zone: 'America/New_York',
      key_table: 'public.symbols',
      key_table_column: 'symbol',
      key_active_column: 'listed',
      key_pattern: null,
      normalise: 'upper',
      gate_function: 'open',
      gate_opens_function: 'opens',
      background_priority: 500,
      ui_threshold: 1000,
      depends_on: ['profile'],
      estimated_data_size_bytes: 2000,
      source_timestamp_field: 'quoted_at',
      max_retries: 0,
      max_run: '00:00:00.25',
      visibility: 'rls',
      managed_by: 'config',
    });
    const [limits] = await database.query('select * from pgfresh.sources');
    expect(limits).toMatchObject({ enabled: true, rate_limit_per_minute: 300, quota_bytes: 20e9, quota_buffer: '0.9' });
    expect(limits).toMatchObject({ viewed_share: '0.35', max_concurrency: 7, one_key_at_a_time: true, api_keys: 2 });

    const before = await versions(database);
    expect(isEmpty(await sync(database, config))).toBe(true);
    expect(await versions(database)).toEqual(before);
  });

  it('changes what differs, also what a hand has changed, and nothing else', async () => {
    const { database } = await scene();
    await sync(database, { sources: [market], dataTypes: [quote, profile] });
    const [untouched] = await versions(database);
    await database.query(`update pgfresh.data_type_registry set max_retries = 9 where data_type = 'quote'`);
    const events = new Events();
    const seen: EventOf<'registry.synced'>[] = [];
    events.on('registry.synced', (event) => seen.push(event));
    const dataTypes = [{ ...quote, ttl: '1h', dependsOn: ['profile'] }, profile] as const;
    const diff = await sync(database, { sources: [market], dataTypes }, events);
    expect(diff.types.changed).toMatchObject([
      {
        name: 'quote',
        changes: [
          { column: 'ttl', from: '15m', to: '1h' },
          { column: 'depends_on', from: 'none', to: 'profile' },
          { column: 'max_retries', from: '9', to: '3' },
        ],
      },
    ]);
    expect(seen).toEqual([{ type: 'registry.synced', added: 0, changed: 1, removed: 0, sources: 0 }]);
    expect((await versions(database))[0]).toEqual(untouched);
  });

  it('turns a dependency round', async () => {
    const { database } = await scene();
    await sync(database, { sources: [market], dataTypes: [{ ...quote, dependsOn: ['profile'] }, profile] });
    await sync(database, { dataTypes: [{ ...profile, dependsOn: ['quote'] }, quote] });
    expect(await names(database)).toEqual(['profile', 'quote']);
  });

  it('removes what the configuration does not have any more, and nothing if it says nothing', async () => {
    const { database } = await scene();
    await sync(database, { sources: [market], dataTypes: [quote, profile] });
    await sync(database, {});
    expect(await names(database)).toEqual(['profile', 'quote']);
    expect((await sync(database, { dataTypes: [quote] })).types.removed).toEqual(['profile']);
    expect(await names(database)).toEqual(['quote']);
    await sync(database, { dataTypes: [] });
    expect(await names(database)).toEqual([]);
    expect(await database.query('select name from pgfresh.sources')).toEqual([{ name: 'market' }]);
  });

  it('removes a type that has open jobs, and their pairs with it', async () => {
    const { database } = await scene();
    await sync(database, { sources: [market], dataTypes: [quote, profile] });
    for (const type of ['quote', 'profile'])
      await database.query(`select pgfresh_engine.queue_refreshes($1::text, '{AAPL,MSFT}')`, [type]);
    await database.query('select pgfresh.get_queue_batch(1)');
    await sync(database, { dataTypes: [profile] });
    const left = await database.query('select data_type, key from pgfresh.api_call_queue order by key');
    expect(left).toEqual(['AAPL', 'MSFT'].map((key) => ({ data_type: 'profile', key })));
    expect(await database.query('select key from pgfresh_engine.pairs')).toHaveLength(2);
  });

  it('leaves what was changed of a source by hand as it is, unless it is told something new', async () => {
    const { database } = await scene();
    const enabled = async () =>
      (await database.query<{ enabled: boolean }>('select enabled from pgfresh.sources'))[0]!.enabled;
    await sync(database, { sources: [market] });
    await database.query('update pgfresh.sources set enabled = false, quota_bytes = 5');
    const diff = await sync(database, { sources: [market] });
    expect(diff.sources).toMatchObject({
      changed: [],
      overridden: [{ column: 'quota_bytes', value: '5', configured: 'none' }],
    });
    expect(await enabled()).toBe(false);
    await sync(database, { sources: [{ ...market, enabled: true }] });
    expect(await enabled()).toBe(true);
  });

  it('never touches a row that is managed by SQL, and refuses a type of its name', async () => {
    const { database } = await scene();
    await sync(database, { sources: [market], dataTypes: [profile] });
    await database.query(`insert into pgfresh.data_type_registry (data_type, source, table_name, key_columns, timestamp_column, ttl, depends_on)
      values ('earnings', 'market', 'quote', '{symbol}', 'fetched_at', '1 hour', '{profile}')`);
    const before = await versions(database);
    expect(isEmpty(await sync(database, { dataTypes: [profile] }))).toBe(true);
    await expect(sync(database, { dataTypes: [profile, { ...quote, name: 'earnings' }] })).rejects.toMatchObject({
      code: 'PGF_TYPE_MANAGED_BY_SQL',
    });
    await expect(sync(database, { dataTypes: [] })).rejects.toMatchObject({ code: 'PGF_TYPE_NEEDED' });
    expect(await versions(database)).toEqual(before);
    await sync(database, { dataTypes: [profile, { ...quote, dependsOn: ['earnings'] }] });
    expect(await names(database)).toEqual(['earnings', 'profile', 'quote']);
  });

  it.each<[string, Config, string, RegExp]>([
    [
      'a source of nowhere',
      { dataTypes: [{ ...quote, source: 'markt' }] },
      'PGF_CONFIG_INVALID',
      /^x\.ts: dataTypes\[0\]\.source \("quote"\): neither .* a source "markt"; did you mean "market"\?$/,
    ],
    [
      'a need of nowhere',
      { dataTypes: [profile, { ...quote, dependsOn: ['profil'] }] },
      'PGF_CONFIG_INVALID',
      /dataTypes\[1\]\.dependsOn .*did you mean "profile"\?$/,
    ],
    [
      'a table that is not there',
      { dataTypes: [profile, { ...quote, table: 'quotes' }] },
      'PGF_TYPE_REFUSED',
      /"quote" .*table_name: there is no table public\.quotes\. Create it, or correct table_name\.$/,
    ],
    [
      'a column that is not there',
      { dataTypes: [profile, { ...quote, key: 'key' }] },
      'PGF_TYPE_REFUSED',
      /no column 'key'\. Its columns: symbol, price/,
    ],
    [
      'a function that is not there',
      { dataTypes: [profile, { ...quote, gate: 'closed' }] },
      'PGF_TYPE_REFUSED',
      /gate_function: there is no function public\.closed/,
    ],
    [
      'a pattern that PostgreSQL does not know',
      { dataTypes: [profile, { ...quote, keyPattern: '(' }] },
      'PGF_TYPE_REFUSED',
      /key_pattern '\(' is not a regular expression/,
    ],
  ])('changes nothing when one of its types has %s', async (_name, config, code, message) => {
    const { database } = await shared;
    await expect(sync(database, config)).rejects.toMatchObject({
      code,
      message: expect.stringMatching(message) as string,
    });
    expect(await names(database)).toEqual([]);
  });

  it('is done once by ten that start at once', async () => {
    const { url, database } = await scene();
    const all = await Promise.all(
      Array.from({ length: 10 }, () => sync(openDatabase(url), { sources: [market], dataTypes: [quote, profile] })),
    );
    expect(all.filter((diff) => !isEmpty(diff))).toHaveLength(1);
    expect(await names(database)).toEqual(['profile', 'quote']);
  });

  it('asks nothing of a login that may only look, unless there is something to write', async () => {
    const { url, database } = await scene();
    await sync(database, { sources: [market], dataTypes: [quote] });
    const user = `pgfresh_looker_${process.pid}`;
    await database.query(`create role ${user} login password 'looker' in role pgfresh_worker`);
    const address = new URL(url);
    [address.username, address.password] = [user, 'looker'];
    const looker = openDatabase(address.href);
    expect(isEmpty(await sync(looker, { sources: [market], dataTypes: [quote] }))).toBe(true);
    await expect(sync(looker, { dataTypes: [] })).rejects.toMatchObject({
      code: 'PGF_DATABASE_RIGHTS',
      message: expect.stringContaining(user) as string,
      next: expect.stringMatching(/: pgfresh migrate$/) as string,
    });
    await looker.close();
    await database.query(`drop role ${user}`);
  });
});

it('does not accept by itself that a registered function is another now', async () => {
  const { database } = await scene();
  const config = { sources: [market], dataTypes: [{ ...quote, staleness: 'is_old' }] };
  await sync(database, config);
  await database.query(
    `create or replace function public.is_old(at timestamptz, ttl interval) returns boolean language sql as 'select false'`,
  );
  expect(isEmpty(await previewSync(database, wanted(config)))).toBe(true);
  await sync(database, config);
  expect(await readProblems(database)).toMatchObject([
    { type: 'quote', problem: 'staleness_function is not what was registered' },
  ]);
});

describe('a setting of a source that somebody has changed in the database', () => {
  const limited = (rateLimitPerMinute: number, more: object = {}): Config => ({
    sources: [{ name: 'market', rateLimitPerMinute, quotaBytes: '1GB', ...more }],
  });
  const row = async (database: Database) => {
    const [found] = await database.query<{ rate: number; quota: number; overrides: Record<string, object> }>(
      `select rate_limit_per_minute as rate, quota_bytes as quota, overrides from pgfresh.sources where name = 'market'`,
    );
    return found!;
  };
  const set = (database: Database, rate: number) =>
    database.query(`update pgfresh.sources set rate_limit_per_minute = ${rate} where name = 'market'`);

  it('truth 24: stays when a process starts, with who and when, and is told of', async () => {
    const { database } = await scene();
    await sync(database, limited(300));
    expect((await row(database)).overrides).toEqual({});
    await set(database, 120);
    const login = await database.query<{ name: string }>('select session_user as name');
    const again = await sync(database, limited(300));
    expect(isEmpty(again)).toBe(true);
    expect(again.sources.overridden).toMatchObject([
      { name: 'market', column: 'rate_limit_per_minute', value: '120', configured: '300', by: login[0]!.name },
    ]);
    expect(await row(database)).toMatchObject({
      rate: 120,
      overrides: { rate_limit_per_minute: { value: 120, config_value: 300, by: login[0]!.name, reason: null } },
    });
    // Another setting of the configuration is written, and the override is left alone.
    await sync(database, limited(300, { quotaBytes: '2GB' }));
    expect(await row(database)).toMatchObject({ rate: 120, quota: 2e9, overrides: { rate_limit_per_minute: {} } });
  });

  it('truth 24: ends when the configuration says something new, also if it says the same', async () => {
    const { database } = await scene();
    await sync(database, limited(300));
    await set(database, 120);
    await sync(database, limited(200));
    expect(await row(database)).toEqual({ rate: 200, quota: 1e9, overrides: {} });
    await set(database, 120);
    expect((await sync(database, limited(120))).sources.changed).toMatchObject([
      { changes: [{ column: 'rate_limit_per_minute', from: '200', to: '120' }] },
    ]);
    expect(await row(database)).toEqual({ rate: 120, quota: 1e9, overrides: {} });
    expect(isEmpty(await sync(database, limited(120)))).toBe(true);
  });

  it('truth 24: is told of also if who sets it says to be a sync', async () => {
    const { database } = await scene();
    await sync(database, limited(300));
    await database.transact('test', async (tx) => {
      await tx.query(`set local pgfresh.sync = 'rate_limit_per_minute'`);
      await tx.query(`select pgfresh_engine.override_source('market', 'rate_limit_per_minute', '700', 'a test')`);
    });
    expect((await row(database)).overrides).toMatchObject({ rate_limit_per_minute: { value: 700, config_value: 300 } });
  });

  it('truth 24: ends when it is set back or cleared, and says why it was set', async () => {
    const { database } = await scene();
    await sync(database, limited(300, { enabled: true }));
    await set(database, 120);
    await set(database, 300);
    expect((await row(database)).overrides).toEqual({});
    await database.query(
      `select pgfresh_engine.override_source('market', 'rate_limit_per_minute', '120', 'incident 7'), pgfresh_engine.override_source('market', 'quota_window', '10 days', 'a test')`,
    );
    expect((await row(database)).overrides).toMatchObject({
      rate_limit_per_minute: { value: 120, reason: 'incident 7' },
      quota_window: { value: 864_000, config_value: 2_592_000, reason: 'a test' },
    });
    await database.query(`update pgfresh.sources set enabled = false`);
    expect(isEmpty(await sync(database, limited(300, { enabled: true })))).toBe(true);
    await database.query(`select pgfresh_engine.clear_source_override('market', 'enabled')`);
    expect(Object.keys((await row(database)).overrides).toSorted()).toEqual(['quota_window', 'rate_limit_per_minute']);
    const [cleared] = await database.query(`select pgfresh_engine.clear_source_override('market') as count`);
    expect(cleared).toEqual({ count: 2 });
    expect(await row(database)).toEqual({ rate: 300, quota: 1e9, overrides: {} });
    expect(isEmpty(await sync(database, limited(300, { enabled: true })))).toBe(true);
  });

  it('truth 24: is none where the configuration says nothing', async () => {
    const { database } = await scene();
    await database.query(`insert into pgfresh.sources (name, rate_limit_per_minute) values ('own', 10)`);
    await database.query(`update pgfresh.sources set rate_limit_per_minute = 20 where name = 'own'`);
    await sync(database, limited(300));
    await database.query(`update pgfresh.sources set enabled = false`);
    expect(await database.query('select overrides from pgfresh.sources')).toEqual([
      { overrides: {} },
      { overrides: {} },
    ]);
    await sync(database, limited(300, { enabled: true }));
    await set(database, 120);
    expect((await row(database)).overrides).toMatchObject({ rate_limit_per_minute: { value: 120 } });
    await database.query(`update pgfresh.sources set managed_by = 'sql' where name = 'market'`);
    expect(await row(database)).toEqual({ rate: 120, quota: 1e9, overrides: {} });
  });
});
