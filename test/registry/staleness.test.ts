import { beforeAll, describe, expect, it } from 'vitest';
import { expectNoChange, expectRefusal } from '../harness/refusal.ts';
import { RegistryScene, type Columns } from './scene.ts';

let scene: RegistryScene;
beforeAll(async () => {
  scene = await RegistryScene.open();
});

const now = `pgfresh.clock()`;

describe('is_data_stale', () => {
  it.each([
    [`${now} - interval '59 seconds', interval '1 minute'`, false],
    [`${now} - interval '60 seconds', interval '1 minute'`, true],
    [`${now} - interval '10 ms', interval '10 ms'`, true],
    [`${now} - interval '9 ms', interval '10 ms'`, false],
    [`${now} + interval '1 day', interval '1 minute'`, false],
    [`null, interval '1 minute'`, true],
    [`'-infinity', interval '1 minute'`, true],
    [`${now} - interval '59 seconds', 1`, false],
    [`${now} - interval '60 seconds', 1`, true],
    [`null, 1`, true],
  ])('(%s) is %s', async (args, stale) => {
    expect(await scene.value(`pgfresh.is_data_stale(${args})`)).toBe(stale);
  });
});

describe("users' own staleness functions", () => {
  beforeAll(async () => {
    // Each says the opposite of ours, so that it shows who was asked.
    await scene.db.query(`
      create function public.by_interval(at timestamptz, ttl interval) returns boolean language sql stable as 'select at + ttl > pgfresh.clock()';
      create function public.by_minutes(at timestamptz, ttl int) returns boolean language sql stable as 'select at + make_interval(mins => ttl) > pgfresh.clock()';
      create function public.both(timestamptz, interval) returns boolean language sql as 'select true';
      create function public.both(timestamptz, int) returns boolean language sql as 'select false';
      create function public.undecided(timestamptz, interval) returns boolean language sql as 'select null::boolean';
      create function public.raises(at timestamptz, interval) returns boolean language plpgsql stable as $$ begin raise 'no idea'; end $$;
      create schema odd; create function odd."Is_Stale"(timestamptz, interval) returns boolean language sql as 'select false';
      grant usage on schema odd to pgfresh_evaluator;
      create function public.is_data_stale(timestamptz, interval) returns boolean language sql as 'select false';
      insert into mirror values ('young', pgfresh.clock()), ('old', pgfresh.clock() - interval '1 hour'), ('untimed', null)`);
  });

  it.each<[string, Columns, { young: string; old: string }]>([
    ['ours by default', {}, { young: 'fresh', old: 'stale' }],
    ['by interval', { staleness_function: 'by_interval' }, { young: 'stale', old: 'fresh' }],
    ['by minutes', { staleness_function: 'public.by_minutes' }, { young: 'stale', old: 'fresh' }],
    ['by interval if there are both', { staleness_function: 'both' }, { young: 'stale', old: 'stale' }],
    ['null is stale', { staleness_function: 'undecided' }, { young: 'stale', old: 'stale' }],
    ['of another schema and mixed case', { staleness_function: 'odd.Is_Stale' }, { young: 'fresh', old: 'fresh' }],
    ['of the same name as ours', { staleness_function: 'is_data_stale' }, { young: 'fresh', old: 'fresh' }],
    ['ours, by its full name', { staleness_function: 'pgfresh.is_data_stale' }, { young: 'fresh', old: 'stale' }],
  ])('%s', async (name, columns, expected) => {
    const type = name.replaceAll(/[ ,]+/g, '_');
    await scene.add(type, columns);
    expect({ young: await scene.state('young', type), old: await scene.state('old', type) }).toEqual(expected);
    // Nobody is asked about what is not there, or has no time.
    expect(await scene.state('missing', type)).toBe('missing');
    expect(await scene.state('untimed', type)).toBe('stale');
  });

  it('by minutes cannot be given a TTL in seconds', async () => {
    await expectRefusal(
      scene.add('half', { staleness_function: 'by_minutes', ttl: '90 seconds' }),
      'PGF_REGISTRY_INVALID',
    );
  });

  it('one that raises counts as stale, once a TTL, with a warning that names it', async () => {
    await scene.add('raising', { staleness_function: 'raises', ttl: '10 minutes' });
    expect(await scene.subscribe('u', 'young', 'raising')).toMatchObject({ planned: { failed: 1, queued: 1 } });
    expect(await scene.queued('raising')).toEqual(['young']);
    expect(await scene.warnings()).toContainEqual(
      expect.objectContaining({
        code: 'check_raised',
        subject: 'raising',
        message: 'no idea',
        next_step: expect.stringContaining('raises') as string,
      }),
    );
    await scene.finish();
    await scene.clock.advance('9 minutes 59 seconds');
    await scene.value('pgfresh.check_and_queue_stale_data()');
    expect(await scene.queued('raising')).toEqual([]);
    await scene.clock.advance('1 second');
    await scene.tick();
    expect(await scene.queued('raising')).toEqual(['young']);
    await scene.finish();
    await scene.leave('u', 'young', 'raising');
  });
});

describe('a TTL of single rows', () => {
  beforeAll(async () => {
    await scene.db.query(`
      create table timed (key text primary key, fetched_at timestamptz, every interval, minutes int, small smallint, big bigint, words text);
      insert into timed select key, pgfresh.clock() - interval '5 minutes', every, minutes, minutes, minutes from (values
        ('short', interval '4 minutes', 4), ('long', interval '6 minutes', 6), ('none', null, null)) as t(key, every, minutes);
      insert into timed values ('zero', pgfresh.clock(), '0', 0, 0, 0), ('negative', pgfresh.clock(), '-1 minute', -1, -1, -1)`);
    for (const column of ['every', 'minutes', 'small', 'big'])
      await scene.add(`ttl_${column}`, { table_name: 'timed', ttl_column: column, ttl: '10 minutes' });
    await scene.add('ttl_own', { table_name: 'timed', ttl_column: 'every', staleness_function: 'both' });
    await scene.add('ttl_own_minutes', { table_name: 'timed', ttl_column: 'every', staleness_function: 'by_minutes' });
  });

  it.each(['every', 'minutes', 'small', 'big'])('from the column %s; null is the TTL of the type', async (column) => {
    const type = `ttl_${column}`;
    expect([
      await scene.state('short', type),
      await scene.state('long', type),
      await scene.state('none', type),
    ]).toEqual(['stale', 'fresh', 'fresh']);
    expect(await scene.explain('none', type)).toMatchObject({ until: null, ttl_seconds: 600 });
    await scene.clock.advance('5 minutes');
    expect(await scene.state('none', type)).toBe('stale');
    await scene.clock.advance('-5 minutes');
  });

  it.each(['ttl_every', 'ttl_minutes', 'ttl_own'])(
    'of 0 or less counts as stale and is warned of: %s',
    async (type) => {
      for (const key of ['zero', 'negative']) {
        expect(await scene.explain(key, type)).toMatchObject({
          state: 'stale',
          problem: expect.stringContaining('a TTL must be positive') as string,
        });
        expect(await scene.subscribe('u', key, type)).toMatchObject({ planned: { failed: 1, queued: 1 } });
      }
      expect(await scene.queued(type)).toEqual(['negative', 'zero']);
      expect(await scene.warnings()).toContainEqual(
        expect.objectContaining({
          code: 'check_raised',
          subject: type,
          message: expect.stringContaining('positive') as string,
        }),
      );
      await scene.finish();
      await scene.tick();
      expect(await scene.queued(type)).toEqual([]);
    },
  );

  it('of seconds is never 0 minutes for a function that counts minutes', async () => {
    await scene.db.query(`insert into timed values ('seconds', pgfresh.clock(), '20 seconds')`);
    await scene.db.query(
      `create function public.shows(at timestamptz, ttl int) returns boolean language plpgsql as $$ begin raise 'asked with % minutes', ttl; end $$`,
    );
    await scene.add('ttl_seconds', { table_name: 'timed', ttl_column: 'every', staleness_function: 'shows' });
    expect(await scene.explain('seconds', 'ttl_seconds')).toMatchObject({ problem: 'asked with 1 minutes' });
  });
});

describe('keys', () => {
  it('with many rows are as fresh as their newest one', async () => {
    await scene.db.query(`
      create table many (key text, fetched_at timestamptz, every interval);
      insert into many values ('A', null, '1 second'), ('A', pgfresh.clock() - interval '1 day', '1 second'), ('A', pgfresh.clock() - interval '10 seconds', '20 seconds'), ('B', null, null), ('B', null, null)`);
    await scene.add('many', { table_name: 'many', ttl_column: 'every' });
    expect(await scene.state('A', 'many')).toBe('fresh');
    expect(await scene.state('B', 'many')).toBe('stale');
    expect(await scene.state('C', 'many')).toBe('missing');
    await scene.clock.advance('10 seconds');
    expect(await scene.state('A', 'many')).toBe('stale');
  });

  it.each([
    ['uuid', '5d0a3f0e-6c0e-4ba1-9b1f-0d3f9ad3c8b1', '5d0a3f0e-6c0e-4ba1-9b1f-0d3f9ad3c8b2'],
    ['int', '7', '8'],
    ['bigint', '-9000000000', '9000000000'],
    ['smallint', '1', '2'],
    ['varchar(10)', 'AAPL', 'AAP'],
    ['char(6)', 'AAPL', 'AAP'],
    ['char(6)', 'ABCDEF', 'ABCDE'],
    ['text collate "C"', 'ä|b', 'Ä|b'],
    ['date', '2026-01-05', '2026-01-06'],
    ['numeric', '1.50', '1.51'],
    ['bool', 'true', 'false'],
    ['"char"', 'x', 'y'],
  ])('of type %s', async (type, there, missing) => {
    await scene.db.query(
      `drop table if exists typed cascade; create table typed (id ${type} primary key, fetched_at timestamptz); insert into typed values ('${there}', pgfresh.clock())`,
    );
    await scene.db.query(`delete from pgfresh.data_type_registry where data_type = 'typed'`);
    await scene.add('typed', { table_name: 'typed', key_columns: ['id'] });
    expect(await scene.state(there, 'typed')).toBe('fresh');
    expect(await scene.state(missing, 'typed')).toBe('missing');
    // As keys of a key table they are admitted or refused.
    await scene.change('typed', { key_table: 'typed', key_table_column: 'id' });
    expect(await scene.state(there, 'typed')).toBe('fresh');
    await expectRefusal(scene.explain(missing, 'typed'), 'PGF_KEY_UNKNOWN');
  });

  it('of several columns have a | between them', async () => {
    await scene.db.query(`
      create table bars ("Symbol" text, day date, n int, fetched_at timestamptz, primary key ("Symbol", day, n));
      insert into bars values ('A', '2026-01-02', 1, pgfresh.clock()), ('', '2026-01-02', 1, pgfresh.clock())`);
    await scene.add('bars', { table_name: 'bars', key_columns: ['Symbol', 'day', 'n'] });
    expect(await scene.state('A|2026-01-02|1', 'bars')).toBe('fresh');
    expect(await scene.state('|2026-01-02|1', 'bars')).toBe('fresh');
    expect(await scene.state('A|2026-01-02|2', 'bars')).toBe('missing');
    for (const key of ['A', 'A|2026-01-02', 'A|2026-01-02|1|', '2026-01-02|1'])
      expect((await expectRefusal(scene.explain(key, 'bars'), 'PGF_KEY_UNKNOWN')).hint).toBe(
        'It has 3 parts, with | between them.',
      );
    // Parts of a wrong type are nobody's row; the pair counts as stale with a warning.
    expect(await scene.explain('A|someday|1', 'bars')).toMatchObject({
      state: 'missing',
      problem: expect.stringContaining('someday') as string,
    });
  });
});

describe('keys outside of a type', () => {
  /** Every function that takes a key. */
  const calls: Record<string, (type: string, key: string) => Promise<unknown>> = {
    upsert_active_subscription: (type, key) => scene.subscribe('u', key, type, scene.session),
    check_and_queue_stale_batch: (type, key) =>
      scene.session.query(`select pgfresh.check_and_queue_stale_batch($1::text, array[$2::text])`, [key, type]),
    explain_pair: (type, key) => scene.session.query('select pgfresh.explain_pair($1::text, $2::text)', [type, key]),
  };
  const inside: Record<string, string> = {
    listed: 'AAPL',
    numbered: '7',
    patterned: 'ABC',
    upper: 'AAPL',
    lower: 'abc',
  };
  let node: number;

  beforeAll(async () => {
    await scene.db.query(`
      create table symbols (symbol text primary key, active boolean); insert into symbols values ('AAPL', true), ('GONE', false), ('HALF', null);
      create table numbers (n int primary key); insert into numbers values (7)`);
    await scene.add('listed', { key_table: 'symbols', key_table_column: 'symbol', key_active_column: 'active' });
    await scene.add('numbered', { key_table: 'public.numbers', key_table_column: 'n' });
    await scene.add('patterned', { key_pattern: '^[A-Z]{1,5}$' });
    await scene.add('upper', { normalise: 'upper', key_table: 'symbols', key_table_column: 'symbol' });
    await scene.add('lower', { normalise: 'lower', key_pattern: '^[a-z]+$' });
    node = await scene.value(`pgfresh_engine.register_process('gateway', $1::text)`, ['test']);
    await scene.session.query(`set pgfresh.user_id = 'u'`);
  });

  it.each(Object.entries(calls))('are refused by %s, and nothing is written', async (_, call) => {
    const outside = {
      listed: ['MSFT', 'GONE', 'HALF', 'aapl', 'AAPL ', `AAPL' or true --`],
      numbered: ['8', '07', ' 7', '+7', '7.0', 'seven', '99999999999', `7) or true --`],
      patterned: ['abc', 'ABCDEF', 'A B', 'ABC|', '^[A-Z]{1,5}$'],
      upper: ['MSFT', 'ẞ'],
      lower: ['a1'],
    };
    await expectNoChange(scene.db, async () => {
      for (const [type, some] of Object.entries(outside)) {
        for (const key of some) await expectRefusal(call(type, key), 'PGF_KEY_UNKNOWN');
        for (const key of ['', 'A\nB', 'x'.repeat(513)]) await expectRefusal(call(type, key), 'PGF_KEY_INVALID');
      }
    });
    for (const type of Object.keys(outside)) await call(type, inside[type]!);
  });

  it('are other keys than those that are written otherwise', async () => {
    expect(await scene.subscribe('n', 'aapl', 'upper')).toMatchObject({ result: 'subscribed', key: 'AAPL' });
    expect(await scene.subscribe('n', 'AaPl', 'upper')).toMatchObject({ result: 'seen', key: 'AAPL' });
    expect(await scene.leave('n', 'aaPL', 'upper')).toBe(true);
    expect(await scene.explain('Aapl', 'upper')).toMatchObject({ key: 'AAPL' });
    expect(await scene.subscribe('n', 'ABC', 'lower')).toMatchObject({ key: 'abc' });
    await scene.value(`pgfresh_engine.set_node_demand($1::bigint, array[$2::int, $2::int], '{XYZ,xyz}', '{2,3}')`, [
      node,
      await scene.typeId('lower'),
    ]);
    expect(await scene.explain('xyZ', 'lower')).toMatchObject({ key: 'xyz', viewers: 3 });
  });

  it('cannot be told when the key table is gone: that is said, with what to do', async () => {
    await scene.db.query('create table doomed (key text)');
    await scene.add('doomed', { key_table: 'doomed', key_table_column: 'key' });
    await scene.db.query('drop table doomed');
    const { message } = await expectRefusal(scene.subscribe('u', 'A', 'doomed'), 'PGF_REGISTRY_INVALID');
    expect(message).toContain('there is no table public.doomed');
  });
});
