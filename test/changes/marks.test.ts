import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Queryable } from '../../src/database/index.ts';
import { createLogin } from '../harness/login.ts';
import { openSession } from '../harness/session.ts';
import { RegistryScene } from '../registry/scene.ts';

let scene: RegistryScene;
let quote: number;

beforeAll(async () => {
  scene = await RegistryScene.open();
  await scene.db.query(`
    create table quote (symbol text primary key, price numeric, fetched_at timestamptz);
    create table bar (symbol text, day date, n int, fetched_at timestamptz);
    create table history (symbol text, n int, fetched_at timestamptz);
    create view shown as select * from quote;
    create table split (symbol text, fetched_at timestamptz) partition by hash (symbol); create table split_0 partition of split for values with (modulus 1, remainder 0)`);
});

beforeEach(async () => {
  await scene.db.query(
    `delete from pgfresh.data_type_registry; delete from pgfresh_engine.change; delete from pgfresh.warnings; truncate quote, bar, history`,
  );
  quote = await scene.add('quote', { table_name: 'quote', key_columns: ['symbol'] });
});

const watch = (...types: number[]) => scene.db.query('select pgfresh_engine.watch_changes($1::int[])', [types]);

/** The keys of each mark since the last call; "whole" for a whole type. */
async function marks(type = quote): Promise<string[][]> {
  const rows = await scene.db.query<{ keys: string[] | null }>(
    'with taken as (delete from pgfresh_engine.change where type_id = $1::int returning xid, keys) select keys from taken order by xid',
    [type],
  );
  return rows.map(({ keys }) => keys ?? ['whole']);
}

const triggersOn = (table: string) =>
  scene.value<string[]>(
    `array(select tgname::text from pg_trigger where tgrelid = $1::regclass and not tgisinternal order by 1)`,
    [table],
  );

/** The marks that a statement makes. */
async function marked(statement: string, db: Queryable = scene.db): Promise<string[][]> {
  await db.query(statement);
  return marks();
}

describe('while a type is watched', () => {
  beforeEach(() => watch(quote));

  it('every kind of write to its table is marked, with the keys that it touches', async () => {
    expect(await marked(`insert into quote values ('A', 1), ('B', 1), ('C', 1)`)).toEqual([['A', 'B', 'C']]);
    expect(await marked(`update quote set price = 2 where symbol < 'C'`)).toEqual([['A', 'B']]);
    expect(await marked(`update quote set symbol = 'D' where symbol = 'C'`)).toEqual([['C', 'D']]);
    expect(await marked(`delete from quote where symbol = 'D'`)).toEqual([['D']]);
    expect(
      await marked(
        `insert into quote values ('A', 3), ('E', 3) on conflict (symbol) do update set price = excluded.price`,
      ),
    ).toEqual(expect.arrayContaining([['A'], ['E']]));
    expect(
      await marked(
        `merge into quote as q using (values ('A'), ('F')) as n(s) on q.symbol = n.s when matched then delete when not matched then insert (symbol) values (n.s)`,
      ),
    ).toEqual(expect.arrayContaining([['A'], ['F']]));
    expect(await marked(`copy quote (symbol) from program 'printf G\\\\n'`)).toEqual([['G']]);
    expect(await marked('truncate quote')).toEqual([['whole']]);
  });

  it('a statement that writes nothing, or is rolled back, leaves no mark', async () => {
    expect(await marked(`update quote set price = 2 where symbol = 'nobody'`)).toEqual([]);
    expect(await marked(`insert into quote select where false`)).toEqual([]);
    expect(
      await marked(`insert into quote values ('A'); delete from quote; select 1 / 0`).catch(() => marks()),
    ).toEqual([]);
  });

  it.each([
    ['1,000 keys', `insert into quote select n from generate_series(1, 1000) as n`, 1_000],
    ['more keys', `insert into quote select n from generate_series(1, 1001) as n`, 'whole'],
  ])('%s', async (_, statement, expected) => {
    const [keys] = await marked(statement);
    if (expected === 'whole') expect(keys).toEqual(['whole']);
    else expect(keys).toHaveLength(expected as number);
  });

  it('many rows with few keys are marked by key, up to 5,000 rows', async () => {
    const history = await scene.add('history', { table_name: 'history', key_columns: ['symbol'] });
    await watch(history);
    await scene.db.query(`insert into history select 'A', n from generate_series(1, 5000) as n`);
    await scene.db.query(`insert into history select 'A', n from generate_series(1, 5001) as n`);
    await scene.db.query('update history set n = n');
    await scene.db.query('delete from history where n <= 2500');
    expect(await marks(history)).toEqual([['A'], ['whole'], ['whole'], ['A']]);
  });

  it('keys are spelled as in the registry', async () => {
    const bar = await scene.add('bar', { table_name: 'bar', key_columns: ['symbol', 'day', 'n'], normalise: 'lower' });
    await watch(bar);
    await scene.db.query(
      `insert into bar values ('AAPL', '2026-01-05', 7), ('é|', '0099-12-31', -1), (null, '2026-01-05', 7), (repeat('x', 600), '2026-01-05', 7)`,
    );
    expect(await marks(bar)).toEqual([['aapl|2026-01-05|7', 'é||0099-12-31|-1']]);
  });

  it('a user without any rights on pgfresh can write as before, and the write is marked', async () => {
    const { name, url } = await createLogin(scene.url);
    await scene.db.query(`grant insert, select, update, delete on quote to ${name}`);
    const session = await openSession(url);
    // Tables of the same names in their own schema do not get in the way.
    await session.query(
      `create temp table change (xid int, type_id int, keys text[]); create temp table watched_type (type_id int)`,
    );
    expect(await marked(`insert into quote values ('A')`, session)).toEqual([['A']]);
    expect(await marked(`update quote set price = 1`, session)).toEqual([['A']]);
    expect(await marked(`delete from quote`, session)).toEqual([['A']]);
    await expect(session.query('select from pgfresh_engine.change')).rejects.toMatchObject({ code: '42501' });
  });

  it('a statement does not fail if a key column was renamed; the whole type is marked', async () => {
    await scene.db.query('alter table quote rename column symbol to ticker');
    expect(await marked(`insert into quote values ('A')`)).toEqual([['whole']]);
    expect(await marked(`update quote set price = 1`)).toEqual([['whole']]);
    await scene.db.query('alter table quote rename column ticker to symbol');
    expect(await marked(`delete from quote`)).toEqual([['A']]);
  });

  it('the marks of a transaction with many statements have its xid', async () => {
    const session = await openSession(scene.url);
    await session.query('begin');
    for (let n = 0; n < 100; n++) await session.query(`insert into quote values ('${n}')`);
    const [row] = await session.query<{ same: boolean }>(
      `select bool_and(w.xmin = pg_current_xact_id()::xid) as same
       from (select xmin from quote union all select xmin from pgfresh_engine.change where type_id = ${quote}) as w`,
    );
    await session.query('commit');
    expect(row).toEqual({ same: true });
    expect(await marks()).toHaveLength(100);
  });

  it('writes through a partitioned table are marked', async () => {
    const split = await scene.add('split', { table_name: 'split', key_columns: ['symbol'] });
    await watch(split);
    await scene.db.query(`insert into split values ('A')`);
    expect(await marks(split)).toEqual([['A']]);
  });
});

describe('while a type is not watched', () => {
  it('nothing is marked, also after the last watcher fell silent', async () => {
    const other = await scene.add('other', { table_name: 'bar', key_columns: ['symbol'] });
    await watch(other);
    expect(await marked(`insert into quote values ('A')`)).toEqual([]);
    await watch(quote);
    expect(await marked(`insert into quote values ('B')`)).toEqual([['B']]);
    await scene.clock.advance('30 seconds');
    expect(await marked(`insert into quote values ('C')`)).toEqual([]);
  });

  it('only transactions that cannot know it make marks, which are deleted within a minute', async () => {
    const session = await openSession(scene.url);
    await session.query('begin isolation level repeatable read; select 1');
    await watch(quote);
    await session.query(`insert into quote values ('A'); commit`);
    expect(await marks()).toEqual([['A']]);
    await scene.clock.advance('1 hour');
    await session.query(`begin isolation level serializable; insert into quote values ('B'); commit`);
    expect(await scene.value('pgfresh_engine.clear_unwatched_changes()')).toBe(1);
    await watch(quote);
    await session.query(`insert into quote values ('C')`);
    expect(await scene.value('pgfresh_engine.clear_unwatched_changes()')).toBe(0);
    expect(await marks()).toEqual([['C']]);
  });
});

describe('the triggers', () => {
  it('are created and dropped with the type, and move with it to another table', async () => {
    const names = ['deleted', 'inserted', 'truncated', 'updated'].map((done) => `pgfresh_${quote}_${done}`);
    expect(await triggersOn('quote')).toEqual(names);
    await scene.change('quote', { table_name: 'history' });
    expect([await triggersOn('quote'), await triggersOn('history')]).toEqual([[], names]);
    await watch(quote);
    await scene.db.query(`insert into history values ('A', 1)`);
    expect(await marks()).toEqual([['A']]);
    await scene.db.query(`delete from pgfresh.data_type_registry where data_type = 'quote'`);
    expect(await triggersOn('history')).toEqual([]);
    expect(
      await scene.value(`array(select proname::text from pg_proc where proname ~ '^(mark|rows)_${quote}$')`),
    ).toEqual([]);
  });

  it('of two types on one table mark both', async () => {
    const second = await scene.add('second', { table_name: 'quote', key_columns: ['symbol'], normalise: 'lower' });
    await watch(quote, second);
    await scene.db.query(`insert into quote values ('A')`);
    expect([await marks(), await marks(second)]).toEqual([[['A']], [['a']]]);
    await scene.db.query(`delete from pgfresh.data_type_registry where data_type = 'second'`);
    expect(await marked(`delete from quote`)).toEqual([['A']]);
  });

  it('that were disabled by hand stay disabled', async () => {
    await scene.db.query(`alter table quote disable trigger pgfresh_${quote}_inserted`);
    await scene.change('quote', { ttl: '2 minutes' });
    await watch(quote);
    expect(await marked(`insert into quote values ('A')`)).toEqual([]);
    expect(await marked(`delete from quote`)).toEqual([['A']]);
  });

  it('that were dropped are created again when the row is written again', async () => {
    await scene.db.query(`drop trigger pgfresh_${quote}_inserted on quote`);
    await scene.change('quote', { data_type: 'quote' });
    expect(await triggersOn('quote')).toHaveLength(4);
    expect(
      await scene.db.query(
        `select p.* from pgfresh.data_type_registry as r cross join lateral pgfresh_engine.type_problem(r) as p`,
      ),
    ).toEqual([]);
  });

  it('cannot be on a view, which is a warning', async () => {
    await scene.add('viewed', { table_name: 'shown', key_columns: ['symbol'] });
    expect(await scene.warnings()).toMatchObject([
      { code: 'changes_unseen', subject: 'viewed', message: expect.stringContaining('no plain table') },
    ]);
  });

  it('that the writer may not create are a warning with the statement to run', async () => {
    const { name, url } = await createLogin(scene.url, 'pgfresh_evaluator');
    await scene.db.query(`
      create table foreign_quote (symbol text, fetched_at timestamptz); grant select on foreign_quote to pgfresh_evaluator;
      grant usage on schema pgfresh, pgfresh_engine to ${name}; grant all on all tables in schema pgfresh, pgfresh_engine to ${name}; grant execute on all functions in schema pgfresh, pgfresh_engine to ${name}; grant usage on all sequences in schema pgfresh to ${name}`);
    const session = await openSession(url);
    await session.query(
      `insert into pgfresh.data_type_registry (data_type, source, table_name, key_columns, timestamp_column, ttl) values ('foreign', 'market', 'foreign_quote', '{symbol}', 'fetched_at', '1 minute')`,
    );
    expect(await scene.warnings()).toMatchObject([
      {
        code: 'changes_unseen',
        subject: 'foreign',
        next_step: expect.stringContaining(`grant trigger on public.foreign_quote to ${name};`),
      },
    ]);
  });

  it('are skipped with a warning on a table that is being written to', async () => {
    const session = await openSession(scene.url);
    await session.query(`begin; insert into history values ('A', 1)`);
    await scene.add('history', { table_name: 'history', key_columns: ['symbol'] });
    await session.query('commit');
    expect(await scene.warnings()).toMatchObject([
      { code: 'changes_unseen', subject: 'history', message: expect.stringContaining('being written to') },
    ]);
    expect(await triggersOn('history')).toEqual([]);
    await scene.change('history', { data_type: 'history' });
    expect(await triggersOn('history')).toHaveLength(4);
  });
});

it('a later snapshot has a greater version, even if only transactions in progress have ended', async () => {
  await scene.db.query('select * from pgfresh_engine.read_pairs($1::int, $2::text[])', [quote, ['A']]);
  const snapshots = [
    '10:12:10,11',
    '10:12:11',
    '12:12:',
    '10:13:10',
    '10:100:10,50,70',
    '10:100:50',
    '50:4294967300:50',
  ];
  const versions = await scene.value<string[]>(
    `array(select pgfresh_engine.version_of(s::pg_snapshot) from unnest($1::text[]) with ordinality as u(s, place) order by place)`,
    [snapshots],
  );
  expect(versions).toEqual([...new Set(versions)].toSorted());
});

describe('reading marks since a snapshot', () => {
  type Answer = { snapshot: string; changes: [number, string[] | null, number[]][] };
  const since = (snapshot?: string) =>
    scene.value<Answer>('pgfresh_engine.watch_changes($1::int[], $2::pg_snapshot)', [[quote], snapshot]);
  const keysOf = ({ changes }: Answer) => changes.flatMap(([, keys]) => keys ?? ['whole']);

  it('each mark is new once, even of a transaction that was open for long', async () => {
    let { snapshot } = await since();
    const next = async (): Promise<string[]> => {
      const answer = await since(snapshot);
      snapshot = answer.snapshot;
      return keysOf(answer);
    };
    const [late, later] = [await openSession(scene.url), await openSession(scene.url)];
    await late.query(`begin; insert into quote values ('late')`);
    await scene.db.query(`insert into quote values ('A')`);
    expect(await next()).toEqual(['A']);
    await later.query(`begin; insert into quote values ('later')`);
    await scene.db.query(`insert into quote values ('B')`);
    expect(await next()).toEqual(['B']);
    expect(await next()).toEqual([]);
    await late.query('commit');
    expect(await next()).toEqual(['late']);
    await later.query('commit');
    expect(await next()).toEqual(['later']);
    expect(await next()).toEqual([]);
  });

  it('only marks that were read are deleted, and none of late transactions', async () => {
    const first = await since();
    const late = await openSession(scene.url);
    await late.query(`begin; insert into quote values ('late')`);
    await scene.db.query(`insert into quote values ('A')`);
    const second = await since(first.snapshot);
    await scene.db.query(`insert into quote values ('B')`);
    await late.query('commit');
    const settle = (from: string | null, to: string) =>
      scene.value<number>('pgfresh_engine.settle_changes($1::pg_snapshot, $2::pg_snapshot)', [from, to]);
    expect(await settle(null, second.snapshot)).toBe(1);
    const third = await since(second.snapshot);
    expect(keysOf(third).toSorted()).toEqual(['B', 'late']);
    expect(await settle(second.snapshot, third.snapshot)).toBe(2);
    expect(await settle(third.snapshot, third.snapshot)).toBe(0);
  });

  it('each transaction has one list of keys per type, or the whole type from 5,001 keys on', async () => {
    const { snapshot } = await since();
    const writer = await openSession(scene.url);
    await writer.query(
      `begin; insert into quote values ('A'); insert into quote values ('B'); update quote set price = 1`,
    );
    const [writing] = await writer.query<{ xid: number }>('select pg_current_xact_id()::text::int as xid');
    await writer.query('commit');
    await scene.db.query(`update quote set price = 2 where symbol = 'A'`);
    expect((await since(snapshot)).changes).toEqual([
      [quote, ['A', 'B'], [writing!.xid]],
      [quote, ['A'], [expect.any(Number)]],
    ]);
    for (let n = 0; n < 6; n++)
      await scene.db.query(`insert into quote select 'k' || n from generate_series(${n * 900}, ${n * 900 + 899}) as n`);
    expect((await since(snapshot)).changes).toEqual([[quote, null, expect.any(Array)]]);
  });

  it('finds new marks by the index, however many others there are', async () => {
    await since();
    await scene.db.query(
      `insert into pgfresh_engine.change (xid, type_id, keys) select '1', $1::int, '{old}' from generate_series(1, 20000)`,
      [quote],
    );
    const { snapshot } = await since();
    await scene.db.query(`insert into quote values ('A')`);
    await scene.session.query('set track_functions = none');
    const reads: number[] = [];
    // The first time, and after changes by others, it also reads the catalog.
    for (let time = 0; time < 4; time++) {
      const [row] = await scene.session.query<{ 'QUERY PLAN': [{ Plan: { 'Shared Hit Blocks': number } }] }>(
        `explain (analyze, buffers, format json) select pgfresh_engine.changes_since('${snapshot}')`,
      );
      reads.push(row!['QUERY PLAN'][0].Plan['Shared Hit Blocks']);
    }
    expect(Math.min(...reads)).toBeLessThan(20);
  });
});
