import { rm } from 'node:fs/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import { EmbeddedServer, migrate, readSqlFiles, uninstall, type Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { atEnd, openDatabase } from '../harness/database.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { installedPrograms, InstalledServer } from '../harness/installed-server.ts';
import { databaseUrl, statement } from '../harness/server.ts';

const events = new Events();
let serverUrl = '';

async function startEmbedded(): Promise<string> {
  const dataDir = await temporaryFolder('uninstall');
  const server = new EmbeddedServer({ dataDir, events, fsync: false });
  atEnd(async () => {
    await server.stop();
    await rm(dataDir, { recursive: true, force: true });
  });
  await server.start();
  return server.url;
}

// Roles belong to the whole server, so this needs servers that no other test uses.
const servers: Record<string, () => Promise<string>> = {
  'the embedded PostgreSQL': startEmbedded,
  ...(installedPrograms && { 'an installed PostgreSQL': async () => (await InstalledServer.start()).create() }),
};

async function create(name: string, owner = 'postgres'): Promise<Database> {
  await statement(serverUrl, `create database ${name} owner ${owner}`);
  const url = new URL(databaseUrl(serverUrl, name));
  if (owner !== 'postgres') [url.username, url.password] = [owner, 'of a test'];
  const database = openDatabase(url.href);
  await database.query(`
    create schema app;
    create table app.symbols (symbol text primary key, listed boolean not null);
    create table quote (symbol text primary key, price numeric, fetched_at timestamptz);
    create table watched (symbol text primary key, fetched_at timestamptz);
    alter table watched enable row level security;
    create function tidy(jsonb) returns jsonb language sql as $$ select '{"success": true, "message": "done"}'::jsonb $$;
    insert into app.symbols values ('AAPL', true);
    insert into quote values ('AAPL', 187.2, '2026-11-18 12:00Z');
    insert into watched values ('AAPL', '2026-11-18 12:00Z')`);
  return database;
}

/** Installs pgfresh and uses everything that reaches beyond its schemas: triggers, grants, policies, functions of a role. */
async function install(database: Database): Promise<void> {
  await migrate(database, { files: await readSqlFiles(), events });
  await database.query('create policy pgfresh on watched for select to pgfresh_evaluator using (true)');
  await database.query(`
    insert into pgfresh.sources (name) values ('market');
    insert into pgfresh.data_type_registry
        (data_type, source, table_name, key_columns, timestamp_column, ttl, key_table, key_table_column)
      values ('quote', 'market', 'quote', '{symbol}', 'fetched_at', '1 minute', 'app.symbols', 'symbol'),
        ('watched', 'market', 'watched', '{symbol}', 'fetched_at', '1 minute', null, null)`);
  await database.query(
    `insert into pgfresh.scheduled_jobs (name, schedule, function_name) values ('tidy', '@daily', 'public.tidy')`,
  );
}

/** All that a database and its server have, with the rights on it, except for PostgreSQL's own. */
async function catalogue(database: Database): Promise<string[]> {
  const rows = await database.query<{ line: string }>(`
    with mine as (select oid from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'),
    thing (kind, name, acl) as (
      select 'schema', oid::regnamespace::text, coalesce(nspacl, acldefault('n', nspowner))
      from pg_namespace where oid in (select oid from mine)
      union all
      select 'relation ' || relkind::text, oid::regclass::text,
        coalesce(relacl, acldefault(case relkind when 'S' then 's' else 'r' end::"char", relowner))
      from pg_class where relnamespace in (select oid from mine)
      union all
      select 'column', format('%s.%s', attrelid::regclass, attname), attacl
      from pg_attribute join pg_class on pg_class.oid = attrelid where relnamespace in (select oid from mine) and attnum > 0
      union all
      select 'function', oid::regprocedure::text, coalesce(proacl, acldefault('f', proowner))
      from pg_proc where pronamespace in (select oid from mine)
      union all
      select 'type', oid::regtype::text, coalesce(typacl, acldefault('T', typowner))
      from pg_type where typnamespace in (select oid from mine)
      union all
      select 'trigger', format('%s on %s', tgname, tgrelid::regclass), null from pg_trigger
      union all
      select 'policy', format('%s on %s', polname, polrelid::regclass), null from pg_policy
      union all
      select 'constraint', format('%s on %s', conname, conrelid::regclass), null
      from pg_constraint where connamespace in (select oid from mine)
      union all
      select 'default rights', defaclobjtype::text, defaclacl from pg_default_acl
      union all
      select 'database', datname::text, coalesce(datacl, acldefault('d', datdba)) from pg_database
      union all
      select 'setting', setconfig::text, null from pg_db_role_setting
      union all
      select 'other', pg_describe_object(classid, objid, 0), null from (
        select 'pg_extension'::regclass as classid, oid as objid from pg_extension
        union all select 'pg_event_trigger'::regclass, oid from pg_event_trigger
        union all select 'pg_publication'::regclass, oid from pg_publication
        union all select 'pg_largeobject'::regclass, oid from pg_largeobject_metadata
      ) as rest
      union all
      select 'role', rolname::text, null from pg_roles
      union all
      select 'member', format('%s of %s', member::regrole, roleid::regrole), null from pg_auth_members
      union all
      select 'in use', pg_describe_object(classid, objid, objsubid), null from pg_shdepend
      where dbid = (select oid from pg_database where datname = current_database()) and refclassid = 'pg_authid'::regclass
    )
    select concat_ws(' ', kind, name, (
      select string_agg(format('%s: %s', coalesce(nullif(grantee, 0)::regrole::text, 'public'), privilege_type), ', '
        order by grantee::text, privilege_type)
      from aclexplode(acl)
    )) as line
    from thing`);
  return rows.map(({ line }) => line).toSorted();
}

const tables = async (database: Database): Promise<unknown[]> =>
  database.query('select * from quote join app.symbols using (symbol) join watched using (symbol)');

const triggers = async (database: Database): Promise<unknown[]> =>
  database.query(`select tgname from pg_trigger where tgrelid in ('quote'::regclass, 'watched'::regclass)`);

describe.each(Object.entries(servers))('on %s, uninstall', (_, startServer) => {
  beforeAll(async () => {
    serverUrl = await startServer();
  });

  it('leaves nothing behind, and tables and their rows as they were', async () => {
    const database = await create('alone');
    await statement(serverUrl, 'create role app_worker');
    const [before, rows] = [await catalogue(database), await tables(database)];
    await install(database);
    await database.query(`
      grant pgfresh_worker to app_worker;
      grant select (price) on quote to pgfresh_monitor;
      grant connect on database alone to pgfresh_viewer;
      alter default privileges in schema app grant select on tables to pgfresh_evaluator;
      create policy two on watched for select to pgfresh_viewer, app_worker using (true)`);
    expect(await triggers(database)).toHaveLength(8);

    const { roles } = await uninstall(database);
    expect(roles.dropped).toHaveLength(8);
    expect(roles.kept).toEqual([]);
    expect(roles.rights).toContain('pgfresh_evaluator on table public.quote');
    await database.query('drop policy two on watched');
    expect(await triggers(database)).toEqual([]);
    expect(await catalogue(database)).toEqual(before);
    expect(await tables(database)).toEqual(rows);
  });

  it('keeps roles that another database uses, without rights in this one', async () => {
    const [first, second] = [await create('first'), await create('second')];
    const before = await catalogue(first);
    await install(first);
    await install(second);
    const { roles } = await uninstall(first);
    expect(roles.dropped).toEqual([]);
    expect(new Set(roles.kept.map(({ reason }) => reason))).toEqual(new Set(['used by the database second']));
    const ours = /^role pgfresh_|^member \w+ of pgfresh_/;
    expect((await catalogue(first)).filter((line) => !ours.test(line))).toEqual(before);
    expect((await uninstall(second)).roles.dropped).toHaveLength(8);
  });

  it('keeps roles that its login may not drop, and says why', async () => {
    await statement(serverUrl, `create role app_owner login password 'of a test' createrole`);
    const database = await create('owned', 'app_owner');
    await install(database);
    await statement(serverUrl, 'alter role app_owner nocreaterole');
    await statement(
      databaseUrl(serverUrl, 'owned'),
      'create table other (id int); grant select on other to pgfresh_evaluator',
    );
    const { roles } = await uninstall(database);
    expect(roles.dropped).toEqual([]);
    expect(roles.kept).toContainEqual({ role: 'pgfresh_evaluator', reason: 'still used by table public.other' });
    expect(roles.kept).toContainEqual({ role: 'pgfresh_worker', reason: 'this login may not drop it' });
    expect(roles.rights).toContain('pgfresh_evaluator on table public.quote');
  });
});
