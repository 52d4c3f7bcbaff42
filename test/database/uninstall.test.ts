import { rm } from 'node:fs/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import {
  EmbeddedServer,
  migrate,
  previewUninstall,
  readSqlFiles,
  uninstall,
  type Database,
} from '../../src/database/index.ts';
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

  it('keeps restrictive policies, with the roles by which they bind members', async () => {
    const database = await create('restricted');
    await install(database);
    await statement(serverUrl, `create role app_viewer login password 'of a test'; create role app_reader`);
    await database.query(`
      create table orders (id int, owner text);
      insert into orders values (1, 'app_viewer'), (2, 'another');
      alter table orders enable row level security;
      grant select on orders to app_viewer;
      grant pgfresh_viewer to pgfresh_operator;
      grant pgfresh_operator to app_viewer;
      create policy everyone on orders using (true);
      create policy theirs on orders as restrictive to pgfresh_viewer using (owner = current_user);
      create policy shared on watched as restrictive to pgfresh_viewer, app_reader using (false)`);
    const url = new URL(databaseUrl(serverUrl, 'restricted'));
    [url.username, url.password] = ['app_viewer', 'of a test'];
    const viewer = openDatabase(url.href);
    const seen = [{ id: 1 }];
    expect(await viewer.query('select id from orders')).toEqual(seen);

    const { roles: preview } = await previewUninstall(database);
    const { roles } = await uninstall(database);
    expect(await viewer.query('select id from orders')).toEqual(seen);
    expect(roles).toEqual(preview);
    expect(roles.kept).toEqual([
      {
        role: 'pgfresh_operator',
        reason:
          'its members are restricted by policy shared on table public.watched, policy theirs on table public.orders',
      },
      {
        role: 'pgfresh_viewer',
        reason: 'still used by policy shared on table public.watched, policy theirs on table public.orders',
      },
    ]);
    expect(
      await database.query(`select polname, polroles::regrole[]::text as roles from pg_policy order by 1`),
    ).toEqual([
      { polname: 'everyone', roles: '{-}' },
      { polname: 'shared', roles: '{pgfresh_viewer,app_reader}' },
      { polname: 'theirs', roles: '{pgfresh_viewer}' },
    ]);
    await database.query(`
      drop table orders;
      drop policy shared on watched;
      drop role pgfresh_viewer, pgfresh_operator`);
  });

  it('keeps a role that has rights on the server, and says which', async () => {
    const database = await create('parameters');
    await install(database);
    await database.query(`
      grant set on parameter log_min_messages to pgfresh_worker;
      grant create on tablespace pg_default to pgfresh_planner`);
    const { roles: preview } = await previewUninstall(database);
    const { roles } = await uninstall(database);
    expect(roles).toEqual(preview);
    expect(roles.kept).toEqual([
      { role: 'pgfresh_planner', reason: 'still used by tablespace pg_default' },
      { role: 'pgfresh_worker', reason: 'still used by parameter log_min_messages' },
    ]);
    await database.query(`
      revoke set on parameter log_min_messages from pgfresh_worker;
      revoke create on tablespace pg_default from pgfresh_planner;
      drop role pgfresh_worker, pgfresh_planner`);
  });

  it('keeps a role that granted a membership', async () => {
    const database = await create('granted');
    await install(database);
    await database.query(`
      create role app_group;
      create role app_member;
      grant app_group to pgfresh_operator with admin option;
      grant app_group to app_member granted by pgfresh_operator`);
    const [server] = await database.query<{ tracks: boolean }>(
      `select current_setting('server_version_num')::int >= 160000 as tracks`,
    );
    const { roles } = await uninstall(database);
    expect(roles.kept).toEqual(
      server!.tracks
        ? [{ role: 'pgfresh_operator', reason: 'still used by membership of role app_member in role app_group' }]
        : [],
    );
    await database.query('drop role app_member, app_group; drop role if exists pgfresh_operator');
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
