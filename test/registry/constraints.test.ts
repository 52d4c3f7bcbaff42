import { beforeAll, describe, expect, it } from 'vitest';
import { blocked } from '../harness/blocked.ts';
import { openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { expectNoChange, expectRefusal } from '../harness/refusal.ts';
import { RegistryScene, type Columns } from './scene.ts';

let scene: RegistryScene;

const invalid = 'PGF_REGISTRY_INVALID';
const check = invalid;
const missing = invalid;

beforeAll(async () => {
  scene = await RegistryScene.open();
  await scene.db.query(`
    create table wide (key text, other text, fetched_at timestamptz, local_at timestamp, day date, words text, flag boolean, share numeric, dropped int, "${'l'.repeat(63)}" text);
    alter table wide drop column dropped;
    create schema "private"; create table "private".hidden (key text, fetched_at timestamptz);
    create function public.hidden_stale(timestamptz, interval) returns boolean language sql as 'select true';
    revoke all on function public.hidden_stale from public;
    create function public.gate(text, text) returns boolean language sql as 'select true';
    create function public.gate_opens(text, text) returns timestamptz language sql as 'select null::timestamptz';
    create function public.gate_of_one(text) returns boolean language sql as 'select true';
    create function public.gate_of_words(text, text) returns text language sql as 'select null::text';
    create function public.gate_of_many(text, text) returns setof boolean language sql as 'select true';
    create procedure public.gate_to_call(text, text) language sql as '';
    create table secured (key text, fetched_at timestamptz); alter table secured enable row level security;
    create policy everybody on secured for select using (true);
    create policy writers on secured for insert to pgfresh_evaluator with check (true);
    create policy less on secured as restrictive for select to pgfresh_evaluator using (true);
    create sequence numbers; create index wide_key on wide (key);
    create table symbols (symbol text, active boolean, state text)`);
  await scene.add('quote', { background_priority: 5, ui_threshold: 10 });
  await scene.add('changing', { table_name: 'wide' });
  await scene.add('profile', { depends_on: ['quote'] });
  await scene.add('news', { depends_on: ['profile'] });
});

const scheduled = { refresh_strategy: 'scheduled', refresh_schedule: '0 6 * * *' };
const keyTable = { key_table: 'symbols', key_table_column: 'symbol' };

/** What a row cannot be, whether it is written or changed, and how that is said. */
const rows: Record<string, readonly (readonly [Columns, string, RegExp?])[]> = {
  data_type: ['', 'Quote', '1a', 'a b', 'a.b', "a'b", 'ä', 'a'.repeat(64), 'a\n'].map((name) => [
    { data_type: name },
    check,
  ]),
  source: [
    [{ source: 'nobody' }, invalid, /there is no source 'nobody'/],
    [{ source: '' }, invalid],
    [{ source: "market'; drop table canary; --" }, invalid],
    [{ source: 'x'.repeat(10_240) }, invalid],
  ],
  fetcher: ['', '1', 'a b', '../x', 'x'.repeat(101)].map((fetcher) => [{ fetcher }, check]),
  ttl: [
    [{ ttl: null }, missing],
    ...['0', '-1 minute', '-1 month', '3661 days'].map((ttl) => [{ ttl }, check] as const),
    ...['0', '-1 second', '3661 days'].map((empty_ttl) => [{ empty_ttl }, check] as const),
  ],
  strategy: [
    [{ refresh_strategy: 'scheduled', ...keyTable }, check],
    [{ refresh_schedule: '0 6 * * *' }, check],
    [{ ...scheduled, ...keyTable, refresh_schedule: '' }, check],
    [{ refresh_strategy: 'sometimes' }, check],
    [{ refresh_strategy: null }, missing],
    [scheduled, check],
    [{ ...scheduled, key_pattern: '^A$' }, check],
  ],
  keys: [
    [{ key_table: 'symbols' }, check],
    [{ key_table_column: 'symbol' }, check],
    [{ key_active_column: 'active' }, check],
    [{ ...keyTable, key_pattern: '^A$' }, check],
    [{ ...keyTable, key_table: 'nowhere' }, invalid, /key_table: there is no table public.nowhere/],
    [
      { ...keyTable, key_table_column: 'nothing' },
      invalid,
      /key_table_column: the table public.symbols has no column 'nothing'/,
    ],
    [{ ...keyTable, key_active_column: 'nothing' }, invalid, /key_active_column: /],
    [{ ...keyTable, key_active_column: 'state' }, invalid, /state of public.symbols is text, expected boolean/],
    [{ key_pattern: '[' }, invalid, /is not a regular expression/],
    [{ key_pattern: '(a{1,100000})' }, invalid],
    [{ normalise: 'title' }, check],
    [{ normalise: null }, missing],
    [{ key_columns: [] }, check],
    [{ key_columns: Array.from({ length: 9 }, () => 'key') }, check],
    [{ key_columns: ['key', 'key'] }, invalid, /names a column twice/],
    [{ key_columns: ['nothing'] }, invalid, /key_columns: the table public.wide has no column 'nothing'/],
    [{ key_columns: [null] }, invalid],
    [{ key_columns: null }, missing],
  ],
  tables: [
    [{ table_name: null }, missing],
    [{ table_name: '' }, invalid],
    [{ table_name: 'nowhere' }, invalid, /there is no table public.nowhere/],
    [{ table_name: 'Wide' }, invalid, /there is no table public."Wide"/],
    [{ table_name: 'public.wide.key' }, invalid, /is not a name/],
    [{ table_name: 'postgres.public.wide' }, invalid],
    [{ table_name: '.wide' }, invalid],
    [{ table_name: 'public.' }, invalid],
    [{ table_name: 'wide ' }, invalid],
    [{ table_name: '"wide"' }, invalid],
    [{ table_name: 'pg_temp.wide' }, invalid, /is not a name/],
    [{ table_name: 'pg_temp_3.wide' }, invalid, /is not a name/],
    [{ table_name: 'pg_catalog.pg_class' }, invalid, /is not a name/],
    [{ table_name: 'pgfresh.sources' }, invalid, /is a table of pgfresh itself/],
    [{ ...keyTable, key_table: 'pgfresh_engine.pairs' }, invalid, /is a table of pgfresh itself/],
    [{ table_name: 'numbers' }, invalid],
    [{ table_name: 'wide_key' }, invalid],
    [{ table_name: 'w'.repeat(64) }, invalid, /is not a name/],
    [{ table_name: 'w'.repeat(200) }, invalid, /is not a name/],
    [{ table_name: `public.${'w'.repeat(200)}` }, invalid, /is not a name/],
    [{ table_name: 'secured', key_columns: ['key'] }, invalid, /row security hides the rows/],
  ],
  columns: [
    [{ timestamp_column: null }, missing],
    [{ timestamp_column: '' }, invalid],
    [{ timestamp_column: 'nothing' }, invalid, /timestamp_column: the table public.wide has no column/],
    [{ timestamp_column: 'FETCHED_AT' }, invalid],
    [{ timestamp_column: 'dropped' }, invalid],
    [{ timestamp_column: 'xmin' }, invalid],
    [{ timestamp_column: 'ctid' }, invalid],
    [
      { timestamp_column: 'local_at' },
      invalid,
      /local_at of public.wide is timestamp without time zone, expected timestamp with/,
    ],
    [{ timestamp_column: 'day' }, invalid],
    [{ timestamp_column: 'wide.fetched_at' }, invalid],
    // The catalog would cut it to a column that there is.
    [{ key_columns: ['l'.repeat(64)] }, invalid],
    [{ key_columns: ['l'.repeat(200)] }, invalid],
    [{ source_timestamp_field: 'nothing' }, invalid, /source_timestamp_field: the table public.wide has no column/],
    [
      { source_timestamp_field: 'local_at' },
      invalid,
      /source_timestamp_field: local_at of public.wide is timestamp without time zone, expected timestamp with/,
    ],
    [{ source_timestamp_field: 'words' }, invalid],
    [{ source_timestamp_field: 'fetched_at' }, invalid, /is a column of the key or the timestamp_column/],
    [{ ttl_column: 'nothing' }, invalid, /ttl_column: /],
    [{ ttl_column: 'words' }, invalid, /words of public.wide is text, expected interval or integer/],
    [{ ttl_column: 'share' }, invalid],
  ],
  functions: [
    [{ staleness_function: null }, missing],
    [{ staleness_function: '' }, invalid],
    [{ staleness_function: 'nothing' }, invalid, /there is no function public.nothing/],
    [
      { staleness_function: 'gate' },
      invalid,
      /there is no function public.gate \(timestamp with time zone, interval\) or/,
    ],
    [{ staleness_function: 'pg_catalog.date_trunc' }, invalid, /is not a name/],
    [{ staleness_function: 'pg_temp.is_data_stale' }, invalid],
    [{ staleness_function: 'a.b.c' }, invalid],
    [{ staleness_function: 's'.repeat(64) }, invalid],
    [{ staleness_function: 'is_data_stale(null, null) or pg_sleep(1)' }, invalid],
    [{ staleness_function: 'hidden_stale' }, invalid, /the planner may not call hidden_stale|public.hidden_stale/],
    [{ gate_function: 'nothing' }, invalid, /gate_function: /],
    [{ gate_function: 'gate_of_one' }, invalid],
    [{ gate_function: 'gate_of_words' }, invalid],
    [{ gate_function: 'gate_of_many' }, invalid],
    [{ gate_function: 'gate_to_call' }, invalid],
    [{ gate_function: 'gate', gate_opens_function: 'gate' }, invalid, /gate_opens_function: /],
    [{ gate_opens_function: 'gate_opens' }, check],
  ],
  priorities: [
    [{ background_priority: 1, ui_threshold: null }, check],
    [{ background_priority: null, ui_threshold: 1 }, check],
    [{ background_priority: -1, ui_threshold: 1 }, check],
    [{ background_priority: 1_000_001, ui_threshold: 1 }, check],
    [{ background_priority: 1, ui_threshold: 0 }, check],
    [{ background_priority: 1, ui_threshold: 1_000_001 }, check],
  ],
  dependencies: [
    [{ depends_on: ['nothing'] }, invalid, /there is no other data type 'nothing'/],
    [{ depends_on: [''] }, invalid],
    [{ depends_on: [null] }, invalid],
    [{ depends_on: null }, missing],
    [{ depends_on: Array.from({ length: 17 }, () => 'quote') }, check],
  ],
  limits: [
    [{ estimated_data_size_bytes: -1 }, check],
    [{ estimated_data_size_bytes: 1e15 + 1 }, check],
    [{ source_timestamp_field: '' }, check],
    [{ empty_rows: 'drop' }, check],
    [{ max_deletes: -0.1 }, check],
    [{ max_deletes: 1.1 }, check],
    [{ max_deletes: null }, missing],
    [{ evict_after: '59 minutes' }, check],
    [{ evict_after: '3661 days' }, check],
    [{ evict_after: '7 days', ...scheduled, ...keyTable }, check],
    [{ max_retries: -1 }, check],
    [{ max_retries: 101 }, check],
    [{ max_run: '0' }, check],
    [{ max_run: '31 days' }, check],
    [{ visibility: 'public' }, check],
    [{ managed_by: 'nobody' }, check],
  ],
};

describe.each(Object.entries(rows))('%s', (_, cases) => {
  it('are refused when a row is written and when it is changed, and nothing is', async () => {
    await expectNoChange(scene.db, async () => {
      for (const [columns, expected, message] of cases) {
        await expectRefused(scene.add('adding', { table_name: 'wide', ...columns }), expected, message);
        await expectRefused(scene.change('changing', columns), expected, message);
      }
    });
  });
});

async function expectRefused(act: Promise<unknown>, expected: string, message = /./): Promise<void> {
  if (expected === invalid) expect((await expectRefusal(act, invalid)).message).toMatch(message);
  else await expect(act).rejects.toMatchObject({ code: expected });
}

it('a circle of dependencies is refused, however long', async () => {
  await expectNoChange(scene.db, async () => {
    for (const type of ['quote', 'profile', 'news'])
      expect((await expectRefusal(scene.change('quote', { depends_on: [type] }), invalid)).message).toMatch(
        /needs itself|no other/,
      );
  });
  // The same twice, and two ways to one, are no circle.
  await scene.change('news', { depends_on: ['profile', 'profile', 'quote'] });
  expect(await scene.value('(select count(*) from pgfresh_engine.type_dependency)')).toBe(3);
});

it('accepts what is at the edge', async () => {
  await scene.add('edge', {
    ttl: '1 millisecond',
    table_name: 'public.wide',
    key_columns: ['l'.repeat(63)],
    data_type: 'e'.repeat(63),
    max_retries: 0,
    depends_on: ['quote'],
  });
  await scene.add('yearly', { ttl: '3660 days', ...scheduled, ...keyTable, key_active_column: 'active' });
  await scene.add('gated', { gate_function: 'public.gate', gate_opens_function: 'gate_opens' });
  await scene.db.query('create view seen as select * from wide; create materialized view kept as select * from wide');
  for (const table of ['seen', 'kept']) await scene.add(table, { table_name: table });
  await scene.db.query('create policy pgfresh on secured for select to pgfresh_evaluator using (true)');
  await scene.add('secured', { table_name: 'secured' });
});

it('truth 6: a source timestamp that was changed or dropped later is seen, and the type is left alone until it is settled', async () => {
  await scene.db.query('create table dated (key text, fetched_at timestamptz, source_at timestamptz)');
  await scene.add('dated', { table_name: 'dated', source_timestamp_field: 'source_at' });
  const problem = () =>
    scene.value<string | null>(
      `(select p.problem from pgfresh.data_type_registry as r cross join lateral pgfresh_engine.type_problem(r) as p where r.data_type = 'dated')`,
    );
  expect(await problem()).toBeNull();
  await scene.db.query('alter table dated alter column source_at type timestamp');
  expect(await problem()).toMatch(/source_timestamp_field: source_at of public.dated is timestamp without time zone/);
  await scene.db.query('alter table dated drop column source_at');
  expect(await problem()).toMatch(/source_timestamp_field: the table public.dated has no column 'source_at'/);
  await scene.db.query('alter table dated add column source_at timestamptz');
  expect(await problem()).toBeNull();
});

it('takes a source by its name or by its number', async () => {
  await scene.db.query(`insert into pgfresh.sources (name) values ('second')`);
  const [first, second] = await scene.value<number[]>('array(select id from pgfresh.sources order by id)');
  const sourceOf = (type: string) =>
    scene.value(`(select array[source, source_id::text] from pgfresh.data_type_registry where data_type = $1::text)`, [
      type,
    ]);
  await scene.add('sourced', { source: null, source_id: second });
  expect(await sourceOf('sourced')).toEqual(['second', String(second)]);
  await scene.change('sourced', { source: 'market' });
  expect(await sourceOf('sourced')).toEqual(['market', String(first)]);
  await scene.change('sourced', { source_id: second });
  expect(await sourceOf('sourced')).toEqual(['second', String(second)]);
  await expectRefusal(scene.change('sourced', { source_id: 4711, source: null }), missing);
});

describe('rights on what is named', () => {
  it('are given by the row, if its writer may give them', async () => {
    expect(await scene.value(`has_table_privilege('pgfresh_evaluator', 'private.hidden', 'select')`)).toBe(false);
    await scene.add('hidden', { table_name: 'private.hidden' });
    expect(await scene.value(`has_table_privilege('pgfresh_evaluator', 'private.hidden', 'select')`)).toBe(true);
    expect(await scene.value(`has_table_privilege('pgfresh_evaluator', 'private.hidden', 'insert')`)).toBe(false);
    expect(await scene.state('A', 'hidden')).toBe('missing');
  });

  it('are asked for with the statement to run, if he may not', async () => {
    const { name, url } = await createLogin(scene.url);
    await scene.db.query(`create schema owned; create table owned.data (key text, fetched_at timestamptz)`);
    // Somebody who may write the registry and call its functions, and owns no table.
    await scene.db.query(
      `grant usage on schema pgfresh, pgfresh_engine to ${name}; grant all on all tables in schema pgfresh, pgfresh_engine to ${name}; grant execute on all functions in schema pgfresh, pgfresh_engine to ${name}`,
    );
    const writer = openDatabase(url, { poolSize: 1 });
    const write = () =>
      writer.query(
        `insert into pgfresh.data_type_registry (data_type, source, table_name, timestamp_column, ttl) values ('owned', 'market', 'owned.data', 'fetched_at', '1 minute')`,
      );
    const { message, hint } = await expectRefusal(write(), invalid);
    expect(message).toContain('the planner may not read owned.data');
    await scene.db.query(hint.replace(/^Run: /, ''));
    await write();
    expect(await scene.state('A', 'owned')).toBe('missing');
  });
});

describe('what changes after it was registered', () => {
  const problem = async (type: string): Promise<{ problem: string; next_step: string } | undefined> =>
    (
      await scene.db.query<{ problem: string; next_step: string }>(
        'select t.* from pgfresh.data_type_registry as r cross join lateral pgfresh_engine.type_problem(r) as t where r.data_type = $1::text',
        [type],
      )
    )[0];

  /** Runs what the problem says is to be done, and sees that it helps. */
  const doWhatItSays = async (type: string): Promise<void> => {
    const { next_step } = (await problem(type))!;
    await scene.db.query(/(?:Run|accept it): (.*)$/.exec(next_step)![1]!);
    expect(await problem(type)).toBeUndefined();
  };

  it('a function with another body is not called until the row is written again', async () => {
    await scene.db.query(
      `create function public.judge(timestamptz, interval) returns boolean language sql as 'select false'`,
    );
    await scene.db.query(`insert into mirror values ('judged', pgfresh.clock())`);
    await scene.add('judged', { staleness_function: 'judge', gate_function: 'gate' });
    expect(await problem('judged')).toBeUndefined();
    await scene.db.query(
      `create or replace function public.judge(timestamptz, interval) returns boolean language sql as 'select true'`,
    );
    expect((await problem('judged'))!.problem).toBe('staleness_function is not what was registered');
    expect(await scene.subscribe('u', 'judged', 'judged')).toMatchObject({
      planned: { skipped: 1, skipped_unresolved: 1 },
    });
    expect(await scene.warnings()).toContainEqual(
      expect.objectContaining({ code: 'type_unresolved', subject: 'judged' }),
    );
    expect(await scene.queued('judged')).toEqual([]);
    await doWhatItSays('judged');
    await scene.clock.advance('1 minute');
    await scene.tick();
    expect(await scene.queued('judged')).toEqual(['judged']);
  });

  it('a function with another owner is not the one that was registered', async () => {
    const { name } = await createLogin(scene.url);
    await scene.db.query(`alter function public.gate owner to ${name}`);
    expect((await problem('judged'))!.problem).toBe('gate_function is not what was registered');
    await scene.db.query('alter function public.gate owner to current_user');
    expect(await problem('judged')).toBeUndefined();
  });

  it('a function that is gone, or that the planner may not call any more', async () => {
    await scene.db.query('revoke all on function public.gate(text, text) from public');
    expect((await problem('judged'))!.problem).toContain('the planner may not call public.gate(text,text)');
    await doWhatItSays('judged');
    await scene.db.query('drop function public.gate(text, text)');
    expect(await problem('judged')).toMatchObject({
      problem: expect.stringContaining('there is no function public.gate') as string,
      next_step: 'Create it, or correct gate_function.',
    });
  });

  it('a table that is gone, or another one of the same name', async () => {
    await scene.db.query('create table passing (key text, fetched_at timestamptz)');
    await scene.add('passing', { table_name: 'passing' });
    await scene.db.query('drop table passing');
    expect((await problem('passing'))!.problem).toBe('table_name: there is no table public.passing');
    await scene.db.query(
      'create table passing (key text, fetched_at timestamptz); grant select on passing to pgfresh_evaluator',
    );
    // Made again as it was, as by a restore, it is the one that was registered.
    expect(await problem('passing')).toBeUndefined();
    await scene.db.query(`
      alter table passing rename to passed; create view passing as table passed;
      grant select on passing to pgfresh_evaluator`);
    expect((await problem('passing'))!.problem).toBe('table_name is not what was registered');
    await scene.db.query('drop view passing; alter table passed rename to passing');
    expect(await problem('passing')).toBeUndefined();
    await scene.db.query('alter table passing alter column key type varchar(20)');
    expect((await problem('passing'))!.problem).toBe('columns is not what was registered');
    await doWhatItSays('passing');
    await scene.db.query('alter table passing rename column fetched_at to at');
    expect((await problem('passing'))!.problem).toContain(`has no column 'fetched_at'`);
  });

  it('row security that is switched on, or a right that is taken away', async () => {
    await scene.db.query('create table closing (key text, fetched_at timestamptz)');
    await scene.add('closing', { table_name: 'closing' });
    await scene.db.query('alter table closing enable row level security');
    expect((await problem('closing'))!.problem).toBe(
      'table_name: row security hides the rows of public.closing from the planner',
    );
    await doWhatItSays('closing');
    await scene.db.query('revoke all on closing from pgfresh_evaluator');
    expect((await problem('closing'))!.problem).toBe('table_name: the planner may not read public.closing');
    await doWhatItSays('closing');
  });
});

it('removing a type cancels its jobs, forgets its pairs and whatever was said of them, and nothing of others', async () => {
  await scene.add('leaving');
  await scene.add('staying');
  const node = await scene.value(`pgfresh_engine.register_process('gateway', $1::text)`, ['test']);
  for (const type of ['leaving', 'staying']) for (const key of ['A', 'B']) await scene.subscribe('u', key, type);
  await scene.tick();
  for (const type of ['leaving', 'staying']) {
    await scene.subscribe('v', 'A', type);
    await scene.db.query(`select pgfresh_engine.set_node_demand($1::bigint, array[$2::int], '{N}', '{3}')`, [
      node,
      await scene.typeId(type),
    ]);
  }
  const [gone, kept] = await scene.value<[number, number]>(
    `array(select type_id from pgfresh.data_type_registry where data_type in ('leaving', 'staying') order by data_type)`,
  );
  const left = async (id: number) =>
    scene.value(
      `array[(select count(*) from pgfresh_engine.job where type_id = $1), (select count(*) from pgfresh_engine.pairs where type_id = $1), (select count(*) from pgfresh_engine.subscription where type_id = $1),
        (select count(*) from pgfresh_engine.node_demand where type_id = $1), (select count(*) from pgfresh_engine.demand_change where type_id = $1), (select count(*) from pgfresh_engine.type_resolution where type_id = $1)]::int[]`,
      [id],
    );
  expect(await left(gone)).toEqual([2, 2, 3, 1, 2, 1]);
  const before = await left(kept);
  await scene.db.query(`delete from pgfresh.data_type_registry where data_type = 'leaving'`);
  expect(await left(gone)).toEqual([0, 0, 0, 0, 0, 0]);
  expect(await left(kept)).toEqual(before);
  expect(
    await scene.value(
      `(select array_agg(status || ' ' || key order by key) from pgfresh_engine.history_other where type_id = $1)`,
      [gone],
    ),
  ).toEqual(['cancelled A', 'cancelled B']);
  await scene.tick();
  expect(await scene.value('(select count(*) from pgfresh_engine.demand_change)')).toBe(0);
});

it('who subscribes while the type is being removed leaves nothing behind either', async () => {
  const type = await scene.add('vanishing');
  const { removed } = await scene.db.transact('subscribe', async (tx) => {
    await scene.subscribe('u', 'A', 'vanishing', tx);
    const waits = scene.db.query(`delete from pgfresh.data_type_registry where data_type = 'vanishing'`);
    await blocked(scene.db);
    return { removed: waits };
  });
  await removed;
  for (const table of [
    'pgfresh_engine.job',
    'pgfresh_engine.pairs',
    'pgfresh_engine.subscription',
    'pgfresh_engine.demand_change',
  ])
    expect([table, await scene.value(`(select count(*) from ${table} where type_id = $1::int)`, [type])]).toEqual([
      table,
      0,
    ]);
});

describe('truth 26: a mistake in the registry has a code, the column, the rule, the value and a next step', () => {
  it.each<[Columns, string, string]>([
    [
      scheduled,
      'refresh_strategy, key_table: a scheduled data type needs key_table: the schedule refreshes the keys that it has, got scheduled, null',
      'Set key_table and key_table_column.',
    ],
    [
      { normalise: 'title' },
      "normalise: expected normalise one of 'none', 'upper', 'lower', got title",
      'Correct the row of pgfresh.data_type_registry; docs/reference/configuration.md says what each column means.',
    ],
    [
      { ttl: '0' },
      "ttl: expected ttl > '00:00:00' AND ttl <= '3660 days', got 00:00:00",
      'Correct the row of pgfresh.data_type_registry; docs/reference/configuration.md says what each column means.',
    ],
    [
      { table_name: null },
      'table_name must not be null',
      'Correct the row of pgfresh.data_type_registry; docs/reference/configuration.md says what each column means.',
    ],
  ])('%j', async (columns, message, hint) => {
    expect(await expectRefusal(scene.add('mistaken', columns), invalid)).toMatchObject({
      message: `${invalid}: ${message}`,
      hint,
    });
  });

  it('and so has one of a source', async () => {
    const { message } = await expectRefusal(
      scene.db.query(`insert into pgfresh.sources (name, viewed_share) values ('other', 1)`),
      invalid,
    );
    expect(message).toBe(`${invalid}: viewed_share: expected viewed_share >= 0 AND viewed_share < 1, got 1`);
  });

  it('whichever rule of the table it breaks that has several columns', async () => {
    const bare = await scene.db.query(`select conname from pg_constraint as c
      where conrelid = 'pgfresh.data_type_registry'::regclass and contype = 'c' and cardinality(conkey) > 1
        and obj_description(c.oid, 'pg_constraint') is null`);
    expect(bare).toEqual([]);
  });
});
