import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  appliedFiles,
  migrate,
  migrationScript,
  pendingMigrations,
  previewMigration,
  previewUninstall,
  readSqlFiles,
  uninstall,
  type Database,
} from '../../src/database/index.ts';
import type { PgfreshError } from '../../src/errors/index.ts';
import { Events } from '../../src/events/index.ts';
import { freezeClock } from '../harness/clock.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';

const folder = await mkdtemp(join(tmpdir(), 'pgfresh-sql-'));
afterAll(() => rm(folder, { recursive: true }));

const events = new Events();
let database: Database;
let url = '';

beforeEach(async () => {
  url = await createDatabase({ empty: true });
  database = openDatabase(url);
  await rm(folder, { recursive: true });
  await mkdir(join(folder, 'migrations'), { recursive: true });
  await mkdir(join(folder, 'api'));
  await file('migrations/001_first.sql', 'create table pgfresh.first (id int)');
  await file('api/answer.sql', `create or replace function pgfresh.answer() returns int language sql as 'select 41'`);
});

const file = (name: string, text: string) => writeFile(join(folder, name), text);
const files = () => readSqlFiles(folder);
const run = async () =>
  (await migrate(database, { files: await files(), events })).applied.map((step) => step.file.name);
const scriptOf = async () => migrationScript(await files(), await previewMigration(database, await files()));

it('applies what is missing, once', async () => {
  expect(await run()).toEqual(['001_first', 'api/answer']);
  expect(await run()).toEqual([]);
  await file('migrations/002_second.sql', 'create table pgfresh.second (id int)');
  expect(await run()).toEqual(['002_second', 'api/answer']);
});

it('applies a functions file again when its text has changed', async () => {
  await run();
  await file('api/answer.sql', `create or replace function pgfresh.answer() returns int language sql as 'select 42'`);
  expect(await run()).toEqual(['api/answer']);
  expect(await database.query('select pgfresh.answer() as answer')).toEqual([{ answer: 42 }]);
});

it('does not mistake other line ends for a change', async () => {
  await file('migrations/001_first.sql', 'create table pgfresh.first (\n  id int\n)');
  await run();
  await file('migrations/001_first.sql', 'create table pgfresh.first (\r\n  id int\r\n)');
  expect(await run()).toEqual([]);
});

it('keeps nothing of a run in which one file fails', async () => {
  await file('migrations/002_second.sql', 'create table pgfresh.second (id int); select 1 / (select 0)');
  await expect(run()).rejects.toMatchObject({
    code: 'PGF_MIGRATION_FAILED',
    message: expect.stringContaining('002_second') as string,
  });
  expect(await appliedFiles(database)).toEqual([]);
  expect(await database.query(`select to_regclass('pgfresh.first') as first`)).toEqual([{ first: null }]);
});

it('takes the time that it needs, however short other statements are kept', async () => {
  await file('migrations/002_second.sql', 'select pg_sleep(0.2)');
  const hasty = openDatabase(url, { statementTimeoutMs: 50, silenceMs: 50 });
  expect((await migrate(hasty, { files: await files(), events })).applied).toHaveLength(3);
  await hasty.close();
});

it('tells of what was applied only after the commit', async () => {
  const told: string[] = [];
  const ears = new Events();
  ears.on('migration.applied', ({ name }) => told.push(name));
  await file('migrations/002_second.sql', 'select 1 / (select 0)');
  await expect(migrate(database, { files: await files(), events: ears })).rejects.toThrow();
  expect(told).toEqual([]);
  await rm(join(folder, 'migrations/002_second.sql'));
  await migrate(database, { files: await files(), events: ears });
  expect(told).toEqual(['migration/001_first', 'functions/api/answer']);
});

describe('a schema of somebody else', () => {
  const mallory = `pgfresh_mallory_${process.pid}`;
  const app = `pgfresh_app_${process.pid}`;
  const bookkeeping = 'create table pgfresh.migrations (kind text, name text, hash text, applied_at timestamptz)';

  beforeEach(async () => {
    for (const role of [mallory, app]) await database.query(`create role ${role}`);
  });
  afterEach(async () => {
    for (const role of [mallory, app]) {
      await database.query(`drop owned by ${role} cascade`);
      await database.query(`drop role ${role}`);
    }
  });

  /** As the given role, which is a superuser unless it is named. */
  const migrateAs = async (role: string) => {
    const address = new URL(url);
    address.searchParams.set('options', `-c role=${role}`);
    const other = openDatabase(address.href);
    try {
      return (await migrate(other, { files: await files(), events })).applied;
    } finally {
      await other.close();
    }
  };

  it('is refused before any of its code runs, also by the script', async () => {
    await database.query(`create schema pgfresh authorization ${mallory}`);
    await database.query(`
      begin; set local role ${mallory}; ${bookkeeping};
      create function pgfresh.trap() returns trigger language plpgsql
        as $$ begin execute 'alter role ${mallory} superuser'; return new; end $$;
      create trigger trap before insert on pgfresh.migrations for each row execute function pgfresh.trap();
      commit`);
    await expect(run()).rejects.toMatchObject({
      code: 'PGF_SCHEMA_FOREIGN',
      message: expect.stringContaining(`belongs to ${mallory}`) as string,
    });
    const script = await scriptOf();
    await expect(database.query(script.replace('\\set ON_ERROR_STOP on', ''))).rejects.toThrow('PGF_SCHEMA_FOREIGN');
    expect(await database.query(`select rolsuper from pg_roles where rolname = '${mallory}'`)).toEqual([
      { rolsuper: false },
    ]);
  });

  it('is not even read when reading would run code', async () => {
    await database.query(`create schema pgfresh`);
    await database.query(
      `create view pgfresh.migrations as select 1 / (select 0) as kind, 1 as name, 1 as hash, 1 as applied_at`,
    );
    expect(await appliedFiles(database)).toEqual([]);
  });

  it('is refused when only one function in it is theirs', async () => {
    await run();
    await database.query(`alter function pgfresh.answer() owner to ${mallory}`);
    await expect(run()).rejects.toThrow(`function pgfresh.answer() belongs to ${mallory}`);
  });

  it('is refused when it was in use for something else', async () => {
    await database.query('create schema pgfresh');
    await database.query(`create type pgfresh.mood as enum ('good')`);
    await expect(run()).rejects.toThrow('it holds type pgfresh.mood, but no record of migrations');
  });

  it('may be empty, and may belong to the login, to a role that it is a member of, or to the owner of the database', async () => {
    await database.query(
      `create schema pgfresh authorization ${app}; create schema pgfresh_engine authorization ${app}`,
    );
    await expect(run()).rejects.toThrow(`schema pgfresh belongs to ${app}`);
    expect(await migrateAs(app)).toHaveLength(2);
    await expect(migrateAs(mallory)).rejects.toThrow(`schema pgfresh belongs to ${app}`);
    await database.query(`grant ${app} to ${mallory}`);
    expect(await migrateAs(mallory)).toEqual([]);
    await database.query(`alter database "${new URL(url).pathname.slice(1)}" owner to ${app}`);
    expect(await run()).toEqual([]);
    await database.query(`alter database "${new URL(url).pathname.slice(1)}" owner to current_user`);
  });
});

it('takes what an earlier version knew as unchanged for confirmed then', async () => {
  const packaged = await readSqlFiles();
  const earlier = packaged.migrations.filter(({ name }) => name < '011');
  await migrate(database, { files: { ...packaged, migrations: earlier, functions: [] }, events });
  await database.query(`
    insert into pgfresh.sources (name) values ('market');
    insert into pgfresh.data_type_registry (data_type, source, source_id, table_name, timestamp_column, ttl)
      select 'quote', name, id, 'quote', 'fetched_at', '1 hour' from pgfresh.sources;
    insert into pgfresh.pairs (type_id, key, outcome, ok_at, checked_at)
      select type_id, outcome, outcome, '2026-01-05T12:00Z', '2026-01-05T12:00Z'
      from pgfresh.data_type_registry, unnest('{fresh,unchanged,empty,older_source}'::text[]) as outcome`);
  await migrate(database, { files: packaged, events });
  expect(await database.query('select key from pgfresh_engine.pairs where confirmed_at = ok_at')).toEqual([
    { key: 'unchanged' },
  ]);
});

it('refuses a migration that was edited after it was applied', async () => {
  await run();
  await file('migrations/001_first.sql', 'create table pgfresh.first (id bigint)');
  await expect(run()).rejects.toMatchObject({
    code: 'PGF_MIGRATION_CHANGED',
    message: expect.stringContaining('001_first') as string,
  });
});

it('refuses a migration that was renamed after it was applied', async () => {
  await run();
  await rm(join(folder, 'migrations/001_first.sql'));
  await file('migrations/001_other.sql', 'select 1');
  await expect(run()).rejects.toMatchObject({ code: 'PGF_MIGRATION_CHANGED' });
});

it('refuses a database that is newer than the code, with its own exit code', async () => {
  await file('migrations/002_second.sql', 'select 1');
  await run();
  await rm(join(folder, 'migrations/002_second.sql'));
  await expect(run()).rejects.toMatchObject({ code: 'PGF_MIGRATION_NEWER', exit: 5 });
});

it('refuses two migrations of one number, and one without', async () => {
  await file('migrations/003_third.sql', 'select 1');
  await file('migrations/003_also.sql', 'select 1');
  await expect(files()).rejects.toThrow('migrations 003_also and 003_third have one number');
  await rm(join(folder, 'migrations/003_also.sql'));
  expect((await files()).migrations).toHaveLength(2);
  await file('migrations/fourth.sql', 'select 1');
  await expect(files()).rejects.toThrow('migration fourth should begin with a number of three digits');
});

it('waits for another process that migrates, and says so when that takes too long', async () => {
  await database.transact('holder', async (tx) => {
    await tx.query('select pg_advisory_xact_lock(7467337004)');
    await expect(migrate(database, { files: await files(), events, lockWaitMs: 1 })).rejects.toMatchObject({
      code: 'PGF_MIGRATION_LOCKED',
    });
  });
  expect(await run()).toHaveLength(2);
});

it('runs once when ten callers start at the same time', async () => {
  const all = await files();
  const many = await Promise.all(Array.from({ length: 10 }, () => migrate(database, { files: all, events })));
  expect(many.filter(({ applied }) => applied.length > 0)).toHaveLength(1);
});

describe('the script for a DBA', () => {
  it('does the same as the migration, and is accepted as done', async () => {
    const script = await scriptOf();
    await database.query(script.replace('\\set ON_ERROR_STOP on', ''));
    expect(await run()).toEqual([]);
    expect(await database.query('select pgfresh.answer() as answer')).toEqual([{ answer: 41 }]);
  });
});

describe('uninstall', () => {
  it('says what goes, and leaves tables of others alone', async () => {
    await file(
      'api/touch.sql',
      `create or replace function pgfresh.touch() returns trigger language plpgsql as 'begin return null; end'`,
    );
    await file(
      'migrations/002_own.sql',
      `create table pgfresh.own (id int primary key default 1 check (id > 0), note text, parent int references pgfresh.own);
       create index on pgfresh.own (note);
       create function pgfresh.own() returns trigger language plpgsql as 'begin return null; end';
       create trigger own after insert on pgfresh.own for each row execute function pgfresh.own();
       create view pgfresh.own_view as select * from pgfresh.own;
       alter table pgfresh.own enable row level security;
       create policy own on pgfresh.own using (true);`,
    );
    await run();
    await database.query('create table mine (id int, answer int default pgfresh.answer())');
    await database.query('create view my_view as select * from pgfresh.first');
    await database.query('create view my_view_of_a_view as select * from my_view');
    await database.query('create materialized view my_copy as select * from my_view');
    await database.query('create function mine() returns int begin atomic; select pgfresh.answer(); end');
    await database.query('create table mine_too (first int references pgfresh.own)');
    await database.query('create trigger touch after update on mine for each row execute function pgfresh.touch()');
    await database.query('insert into mine values (1)');
    const preview = await previewUninstall(database);
    expect(preview.objects).toEqual([
      { kind: 'function', count: 3 },
      { kind: 'table', count: 5 },
      { kind: 'view', count: 1 },
    ]);
    expect(preview.dependents).toEqual([
      'constraint mine_too_first_fkey on table public.mine_too',
      'default value for column answer of table public.mine',
      'function public.mine()',
      'materialized view public.my_copy',
      'trigger touch on table public.mine',
      'view public.my_view',
      'view public.my_view_of_a_view',
    ]);
    expect(preview.blockers).toEqual([]);
    const { roles: _, ...dropped } = await uninstall(database);
    expect(dropped).toEqual({ ...preview, roles: undefined });
    expect(await database.query('select * from mine')).toEqual([{ id: 1, answer: 41 }]);
    expect(await database.query(`select to_regclass('my_view') as view, to_regnamespace('pgfresh') as schema`)).toEqual(
      [{ view: null, schema: null }],
    );
  });

  it.each([
    ['column mood of table public.mine', 'create table mine (id int, mood pgfresh.mood)'],
    [
      'column mood of table public.mine',
      'create domain better as pgfresh.mood; create table mine (id int, mood better[])',
    ],
    ['table public.mine', 'create table mine () inherits (pgfresh.first)'],
    ['table public.mine', 'create table mine of pgfresh.pair'],
  ])('drops nothing while %s would go', async (name, text) => {
    await file(
      'migrations/002_types.sql',
      `create type pgfresh.mood as enum ('good'); create type pgfresh.pair as (a int, b int)`,
    );
    await run();
    await database.query(text);
    expect((await previewUninstall(database)).blockers).toEqual([name]);
    await expect(uninstall(database)).rejects.toMatchObject({ code: 'PGF_UNINSTALL_BLOCKED', values: { names: name } });
    await database.query('select from mine, pgfresh.first');
  });

  it.each([
    ['table pgfresh.mine', 'create table pgfresh.mine (id int)'],
    [
      'table pgfresh_engine.mine',
      'create schema if not exists pgfresh_engine; create table pgfresh_engine.mine (id int)',
    ],
    [
      'table pgfresh.mine',
      `create table pgfresh.mine (id int) partition by list (id);
       create table pgfresh.mine_1 partition of pgfresh.mine for values in (1)`,
    ],
    [
      'table pgfresh.mine_1',
      `create table mine (id int) partition by list (id); create table pgfresh.mine_1 partition of mine for values in (1)`,
    ],
  ])('drops nothing while a user has the %s', async (name, text) => {
    await run();
    await database.query(text);
    // An upgrade does not make it ours.
    await file('migrations/002_second.sql', 'create table pgfresh.second (id int)');
    await run();
    expect((await previewUninstall(database)).blockers).toEqual([name]);
    await expect(uninstall(database)).rejects.toMatchObject({ code: 'PGF_UNINSTALL_BLOCKED', values: { names: name } });
    await database.query(`select from ${name.split(' ')[1]}, pgfresh.second`);
    await database.query(`alter ${name} set schema public`);
  });

  it('names the functions, views, sequences and types that users have in the schemas', async () => {
    await run();
    await database.query(`
      create view pgfresh.my_view as select 1 as one;
      create materialized view pgfresh.my_copy as select 1 as one;
      create sequence pgfresh.my_numbers;
      create type pgfresh.my_mood as enum ('good');
      create function pgfresh.mine(int) returns int language sql as 'select 1'`);
    const names = [
      'function pgfresh.mine(integer)',
      'materialized view pgfresh.my_copy',
      'sequence pgfresh.my_numbers',
      'type pgfresh.my_mood',
      'view pgfresh.my_view',
    ];
    expect(await previewUninstall(database)).toMatchObject({ dependents: names, blockers: [] });
    await uninstall(database);
  });

  it('finds nothing where nothing is', async () => {
    expect(await previewUninstall(database)).toEqual({
      installed: false,
      objects: [],
      dependents: [],
      blockers: [],
      roles: { rights: [], dropped: [], kept: [] },
    });
    await uninstall(database);
  });
});

describe('the packaged files', () => {
  it('are all applied in a cloned test database', async () => {
    const clone = openDatabase(await createDatabase());
    expect(await pendingMigrations(clone, await readSqlFiles())).toEqual([]);
  });

  it('give a clock that moves, that a test can stop, and that nobody else may call', async () => {
    const clone = openDatabase(await createDatabase());
    const [row] = await clone.query<{ moves: boolean; granted: boolean }>(`
      select pgfresh.clock() < (select pgfresh.clock() from pg_sleep(0.001)) as moves,
        has_function_privilege('pg_monitor', 'pgfresh.clock()', 'execute') as granted`);
    expect(row).toEqual({ moves: true, granted: false });
    const clock = await freezeClock(clone, '2026-03-01T00:00:00Z');
    await clock.advance('90 minutes');
    expect(await clone.query('select pgfresh.clock() as now')).toEqual([{ now: new Date('2026-03-01T01:30:00Z') }]);
  });
});

describe('a login that is no superuser', () => {
  it('is told what to run when it may not use the roles, and then owns everything', async () => {
    const login = await createLogin(url);
    await database.query(`grant create on database ${new URL(url).pathname.slice(1)} to ${login.name}`);
    const limited = openDatabase(login.url);
    const real = { files: await readSqlFiles(), events: new Events() };
    const refused = await migrate(limited, real).catch((error: unknown) => error as PgfreshError);
    expect(refused).toMatchObject({ code: 'PGF_DATABASE_RIGHTS' });
    const { next } = refused as PgfreshError;
    expect(next).toContain(`grant pgfresh_evaluator to "${login.name}";`);
    await database.query(next.slice(next.indexOf('grant')));

    await migrate(limited, real);
    await database.query(
      `create table quote (key text primary key, fetched_at timestamptz); alter table quote owner to ${login.name}`,
    );
    await limited.query(`insert into pgfresh.sources (name) values ('market')`);
    await limited.query(
      `insert into pgfresh.data_type_registry (data_type, source, table_name, timestamp_column, ttl) values ('quote', 'market', 'quote', 'fetched_at', '1 minute')`,
    );
    const [row] = await limited.query(
      `select pgfresh.upsert_active_subscription('ada', 'A', 'quote') -> 'planned' as planned`,
    );
    expect(row).toMatchObject({ planned: { missing: 1, queued: 1 } });
    // Again, as an upgrade does it.
    const changed = real.files.functions.map((known) =>
      known.name === 'registry' ? { ...known, hash: 'another' } : known,
    );
    await migrate(limited, { ...real, files: { ...real.files, functions: changed } });
  });
});
