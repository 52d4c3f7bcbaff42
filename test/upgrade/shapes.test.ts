import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { migrate, previewMigration, type Database, type SqlFiles } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { openSession } from '../harness/session.ts';
import { describeSchemas } from './described-schemas.ts';
import { empty, madeUp } from './made-up-files.ts';

const events = new Events();
let url = '';
let database: Database;
beforeAll(async () => {
  url = await createDatabase({ empty: true });
  database = openDatabase(url);
});
beforeEach(() => empty(database));

const install = (files: SqlFiles, lockWaitMs?: number) =>
  migrate(database, { files, events, ...(lockWaitMs === undefined ? {} : { lockWaitMs }) });

const f = (signature: string, body = 'select 1') =>
  `create or replace function pgfresh.${signature} language sql as '${body}';`;
const tables = ['create table pgfresh.pairs (id int, key text, at timestamptz)'];

/** What a release may change that "create or replace" makes a second function of, or refuses. */
const changes: readonly (readonly [string, string, string])[] = [
  ['a parameter with a default is added', f('f(a int) returns int'), f('f(a int, b int default 0) returns int')],
  ['a parameter goes', f('f(a int, b int) returns int'), f('f(a int) returns int')],
  ['a parameter has another type', f('f(a int) returns int'), f('f(a bigint) returns int')],
  ['a parameter has another name', f('f(a int) returns int'), f('f(b int) returns int')],
  ['a parameter has no default any more', f('f(a int default 1) returns int'), f('f(a int) returns int')],
  ['a parameter gets a default', f('f(a int) returns int'), f('f(a int default 1) returns int')],
  ['the result has another type', f('f() returns int'), f('f() returns bigint', 'select 1::bigint')],
  ['the result becomes a set', f('f() returns int'), f('f() returns setof int')],
  ['a column of the result has another name', f('f() returns table (a int)'), f('f() returns table (b int)')],
  ['an out parameter is added', f('f(out a int)'), f('f(out a int, out b int)', 'select 1, 2')],
  [
    'a function becomes a procedure',
    f('f() returns int'),
    `create or replace procedure pgfresh.f() language sql as 'select 1';`,
  ],
  ['a function goes', f('f() returns int') + f('g() returns int'), f('g() returns int')],
  [
    'a view loses a column',
    'create or replace view pgfresh.v as select id, key from pgfresh.pairs;',
    'create or replace view pgfresh.v as select key from pgfresh.pairs;',
  ],
  [
    'a view gets a column in between',
    'create or replace view pgfresh.v as select id, key from pgfresh.pairs;',
    'create or replace view pgfresh.v as select id, at, key from pgfresh.pairs;',
  ],
  [
    'a view goes, which another one read',
    'create or replace view pgfresh.v as select id from pgfresh.pairs; create or replace view pgfresh.w as select id from pgfresh.v;',
    'create or replace view pgfresh.w as select id from pgfresh.pairs;',
  ],
  [
    'a function goes that another one calls in its parsed body',
    `${f('f() returns int')} create or replace function pgfresh.g() returns int begin atomic; select pgfresh.f(); end;`,
    `create or replace function pgfresh.g() returns int begin atomic; select 2; end;`,
  ],
  [
    'a row type has another attribute, and functions return it',
    `do $$ begin if to_regtype('pgfresh.t') is null then create type pgfresh.t as (a int); end if; end $$;
     ${f('f() returns pgfresh.t[]', 'select null::pgfresh.t[]')}`,
    `do $$ begin if to_regtype('pgfresh.t') is null then create type pgfresh.t as (a int, b int); end if; end $$;
     ${f('f() returns pgfresh.t[]', 'select null::pgfresh.t[]')}`,
  ],
  [
    'a trigger goes, with its function',
    `create or replace function pgfresh.note() returns trigger language plpgsql as 'begin return new; end';
     create or replace trigger note before insert on pgfresh.pairs for each row execute function pgfresh.note();`,
    f('g() returns int'),
  ],
  [
    'a trigger becomes one of a constraint',
    `create or replace function pgfresh.note() returns trigger language plpgsql as 'begin return new; end';
     create or replace trigger note after insert on pgfresh.pairs for each row execute function pgfresh.note();`,
    `create or replace function pgfresh.note() returns trigger language plpgsql as 'begin return new; end';
     do $$ begin if not exists (select from pg_trigger where tgname = 'note') then
       create constraint trigger note after insert on pgfresh.pairs deferrable for each row execute function pgfresh.note();
     end if; end $$;`,
  ],
];

describe('an upgrade in which', () => {
  it.each(changes)('%s leaves what a new installation has', async (_, before, after) => {
    const [old, next] = [
      await madeUp({ functions: before, migrations: tables }),
      await madeUp({ functions: after, migrations: tables }),
    ];
    await install(old.files);
    expect(await describeSchemas(database)).toEqual(old.fresh);
    await install(next.files);
    expect(await describeSchemas(database)).toEqual(next.fresh);
  });
});

it('a call with fewer arguments is clear after a parameter with a default was added', async () => {
  await install((await madeUp({ functions: f('f(a int) returns int') })).files);
  await install((await madeUp({ functions: f('f(a int, b int default 2) returns int', 'select b') })).files);
  expect(await database.query('select pgfresh.f(1)')).toEqual([{ f: 2 }]);
});

it('says what it drops, replaces and creates, before and after', async () => {
  await install((await madeUp({ functions: f('f() returns int') + f('g() returns int') })).files);
  const { files } = await madeUp({ functions: f('g() returns bigint', 'select 1::bigint') + f('h() returns int') });
  await database.query(f('mine() returns int'));
  const objects = {
    dropped: ['function pgfresh.f()'],
    replaced: ['function pgfresh.g()'],
    created: ['function pgfresh.h()'],
    yours: ['function pgfresh.mine()'],
  };
  expect((await previewMigration(database, files)).objects).toEqual(objects);
  expect((await install(files)).objects).toEqual(objects);
  expect((await install(files)).objects).toEqual({ dropped: [], replaced: [], created: [], yours: [] });
});

it('an object is still ours after a numbered file has moved it', async () => {
  const before = f('f(p pgfresh.pairs) returns int') + f('g() returns int') + f('h() returns int');
  await install((await madeUp({ functions: before, migrations: tables })).files);
  const move = `alter table pgfresh.pairs set schema pgfresh_engine;
    do $$ begin
      if to_regprocedure('pgfresh.g()') is not null then
        alter function pgfresh.g() set schema pgfresh_engine;
        alter function pgfresh.h() rename to i;
      end if;
    end $$`;
  const after = `create or replace function pgfresh_engine.g() returns bigint language sql as 'select 1::bigint';`;
  const next = await madeUp({ functions: after, migrations: [...tables, move] });
  const { objects } = await install(next.files);
  expect(objects.dropped).toEqual(['function pgfresh.f(pgfresh_engine.pairs)', 'function pgfresh.i()']);
  expect(objects.replaced).toEqual(['function pgfresh_engine.g()']);
  expect(await describeSchemas(database)).toEqual(next.fresh);
});

describe('objects of others', () => {
  it('stay, also where they look like ours', async () => {
    await install((await madeUp({ functions: f('f(a int) returns int') })).files);
    await database.query(
      f('f(a text) returns int') + 'create table pgfresh.notes (id int); create view pgfresh.v as select 1 as a',
    );
    const { objects } = await install((await madeUp({ functions: f('g() returns int') })).files);
    expect(objects.yours).toEqual(['function pgfresh.f(text)', 'table pgfresh.notes', 'view pgfresh.v']);
    expect(
      await database.query(`select pgfresh.f('a'), v.a from pgfresh.v, (select count(*) from pgfresh.notes) as n`),
    ).toEqual([{ f: 1, a: 1 }]);
  });

  it.each([
    ['view public.mine', 'create view mine as select pgfresh.f() as f'],
    ['function public.mine()', 'create function mine() returns int begin atomic; select pgfresh.f(); end'],
    ['default value for public.mine.f', 'create table mine (f int default pgfresh.f())'],
    ['table constraint mine_f_check on public.mine', 'create table mine (f int check (f > pgfresh.f()))'],
    ['view pgfresh.mine', 'create view pgfresh.mine as select pgfresh.f() as f'],
  ])('%s is named, and nothing changes, while it needs what has to go', async (name, text) => {
    await install((await madeUp({ functions: f('f() returns int') })).files);
    await database.query(text);
    const before = await describeSchemas(database);
    const { files } = await madeUp({ functions: f('f() returns bigint', 'select 1::bigint') });
    const refusal = { code: 'PGF_UPGRADE_BLOCKED', values: { names: `${name} (needs function pgfresh.f())` } };
    await expect(previewMigration(database, files)).rejects.toMatchObject(refusal);
    await expect(install(files)).rejects.toMatchObject(refusal);
    expect(await describeSchemas(database)).toEqual(before);
    await database.query(`drop ${text.split(' ')[1]} ${text.includes('pgfresh.mine') ? 'pgfresh.mine' : 'mine'}`);
    await install(files);
  });

  it('a trigger on a table of theirs too', async () => {
    const trigger = `create or replace function pgfresh.note() returns trigger language plpgsql as 'begin return new; end';`;
    await install((await madeUp({ functions: trigger })).files);
    await database.query(
      'create table mine (id int); create trigger note before insert on mine for each row execute function pgfresh.note()',
    );
    const { files } = await madeUp({ functions: f('g() returns int') });
    await expect(install(files)).rejects.toThrow('trigger note on public.mine (needs function pgfresh.note())');
    // Its body may change.
    await install((await madeUp({ functions: trigger.replace('new', 'old') })).files);
  });

  it('are not overwritten by something new of the same name', async () => {
    await install((await madeUp({ functions: f('f() returns int') })).files);
    await database.query(f('g() returns int', 'select 7'));
    const { files } = await madeUp({ functions: f('f() returns int') + f('g() returns int') });
    const refusal = { code: 'PGF_UPGRADE_NAME_TAKEN', values: { names: 'function pgfresh.g()' } };
    await expect(previewMigration(database, files)).rejects.toMatchObject(refusal);
    await expect(install(files)).rejects.toMatchObject(refusal);
    expect(await database.query('select pgfresh.g()')).toEqual([{ g: 7 }]);
  });
});

it('a grant that was given by hand is gone, and nothing is for everybody', async () => {
  const functions = (body: string) =>
    `${f('f() returns int', body)} revoke all on function pgfresh.f() from public; grant execute on function pgfresh.f() to pgfresh_worker;`;
  await install((await madeUp({ functions: functions('select 1'), migrations: tables })).files);
  await database.query(`
    grant execute on function pgfresh.f() to public, pgfresh_viewer; grant select, update (key) on pgfresh.pairs to pgfresh_viewer;
    grant usage on schema pgfresh to public`);
  const next = await madeUp({ functions: functions('select 2'), migrations: tables });
  await install(next.files);
  expect(await describeSchemas(database)).toEqual(next.fresh);
  expect(JSON.stringify(await describeSchemas(database))).not.toContain('public: ');
});

it('rolls back if what the manifest promises is not there', async () => {
  await install((await madeUp({ functions: f('f() returns int') })).files);
  const { files } = await madeUp({ functions: f('f() returns int', 'select 2') });
  const promised = { kind: 'function', identity: 'pgfresh.g()', shape: 'f() integer', defaults: 0 } as const;
  const current = [...files.manifests.current, promised];
  await expect(install({ ...files, manifests: { ...files.manifests, current } })).rejects.toMatchObject({
    code: 'PGF_UPGRADE_INCOMPLETE',
    values: { names: 'function pgfresh.g()' },
  });
  expect(await database.query('select pgfresh.f()')).toEqual([{ f: 1 }]);
});

describe('a table that is in use', () => {
  it('is waited for, and then the upgrade says so', async () => {
    const trigger = (when: string) =>
      `create or replace function pgfresh.note() returns trigger language plpgsql as 'begin return new; end';
       create or replace trigger note ${when} insert on pgfresh.pairs for each row execute function pgfresh.note();`;
    await install((await madeUp({ functions: trigger('before'), migrations: tables })).files);
    const { files } = await madeUp({ functions: trigger('after'), migrations: tables });
    const session = await openSession(url);
    await session.query(`begin; insert into pgfresh.pairs values (1, 'A', now())`);
    await expect(install(files, 1)).rejects.toMatchObject({ code: 'PGF_MIGRATION_BUSY' });
    const upgrade = install(files);
    // It gives way after two seconds, and tries again.
    await expect
      .poll(() => database.query(`select from pg_locks where not granted and relation = 'pgfresh.pairs'::regclass`))
      .toHaveLength(1);
    await expect
      .poll(() => database.query(`select from pg_locks where not granted and relation = 'pgfresh.pairs'::regclass`))
      .toHaveLength(0);
    await session.query('commit');
    expect((await upgrade).applied).toHaveLength(1);
  });
});
