import { readFile } from 'node:fs/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import { migrate, readSqlFiles, type Queryable } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { examineSources, listSources, pauseSource, resumeSource } from '../../src/sources/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { expectNoChange, expectRefusal } from '../harness/refusal.ts';
import { openSession } from '../harness/session.ts';
import { RegistryScene } from './scene.ts';

let scene: RegistryScene;
beforeAll(async () => {
  scene = await RegistryScene.open();
});

it('every right of every role on everything in the schema is one that was meant', async () => {
  const lines = await scene.value<string[]>(`
    array(
      with roles (role) as (values ('worker'), ('planner'), ('gateway'), ('monitor'), ('operator'), ('scheduler'), ('viewer'), ('evaluator')),
      objects as (
        select 'schema' as kind, nspname::text as name, role, array(select r from unnest('{usage,create}'::text[]) as r where has_schema_privilege('pgfresh_' || role, oid, r)) as rights
        from pg_namespace cross join roles where nspname in ('pgfresh', 'pgfresh_engine')
        union all
        select case relkind when 'v' then 'view' else 'table' end, pg_class.oid::regclass::text, role,
          array(select r from unnest('{select,insert,update,delete,truncate,references,trigger}'::text[]) as r where has_table_privilege('pgfresh_' || role, oid, r) or (r not in ('delete', 'truncate', 'trigger') and has_any_column_privilege('pgfresh_' || role, oid, r)))
        from pg_class cross join roles where relnamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace) and relkind in ('r', 'p', 'v', 'm')
        union all
        select 'sequence', pg_class.oid::regclass::text, role, array(select r from unnest('{usage,select,update}'::text[]) as r where has_sequence_privilege('pgfresh_' || role, oid, r))
        from pg_class cross join roles where relnamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace) and relkind = 'S'
        union all
        select 'function', format('%s.%s(%s)%s', pronamespace::regnamespace, proname, oidvectortypes(proargtypes), case when proowner = 'pgfresh_evaluator'::regrole then ', which the evaluator owns' when prosecdef then '' else ', with the rights of the caller' end),
          role, case when has_function_privilege('pgfresh_' || role, oid, 'execute') then '{execute}'::text[] else '{}' end
        from pg_proc cross join roles where pronamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace)
      )
      select format('%-9s %-9s %s %s', role, kind, array_to_string(rights, '+'), name) from objects
      where rights <> '{}' and not (role in ('monitor', 'operator') and kind in ('table', 'view') and rights = '{select}' and name !~ '^pgfresh_engine')
      order by role, kind, name collate "C"
    )`);
  const text = [
    'Rights of each role on the schemas pgfresh and pgfresh_engine. What is not listed is not given; monitor and operator read all tables and views of pgfresh besides.',
    ...lines,
    '',
  ].join('\n');
  await expect(text).toMatchFileSnapshot('rights.txt');
});

it('monitors and operators read every table and view of pgfresh', async () => {
  expect(
    await scene.value(`array(
      select role || ' ' || relname from pg_class cross join unnest('{pgfresh_monitor,pgfresh_operator}'::text[]) as role
      where relnamespace = 'pgfresh'::regnamespace and relkind in ('r', 'p', 'v', 'm') and not relispartition and not has_table_privilege(role, pg_class.oid, 'select')
    )`),
  ).toEqual([]);
});

it('nothing is for everybody', async () => {
  expect(
    await scene.value(`array(
      select o.name from (
        select nspname::text as name, nspacl as acl, 'n' as kind, nspowner as owner from pg_namespace where nspname in ('pgfresh', 'pgfresh_engine')
        union all select relname, relacl, case relkind when 'S' then 's' else 'r' end, relowner from pg_class where relnamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace) and relkind in ('r', 'p', 'v', 'm', 'S')
        union all select oid::regprocedure::text, proacl, 'f', proowner from pg_proc where pronamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace)
      ) as o where exists (select from aclexplode(coalesce(o.acl, acldefault(o.kind::"char", o.owner))) as a where a.grantee = 0)
    )`),
  ).toEqual([]);
});

it('viewers and applications execute nothing with the rights of its owner, but what applications may', async () => {
  const definers = await scene.value<string[]>(
    `array(
      select format('%s %s.%s', role, pronamespace::regnamespace, proname)
      from pg_proc cross join unnest('{viewer,scheduler}'::text[]) as role
      where pronamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace) and prosecdef
        and has_function_privilege('pgfresh_' || role, pg_proc.oid, 'execute')
      order by 1)`,
  );
  expect(definers).toEqual([
    'scheduler pgfresh.acquire_refresh_lock',
    'scheduler pgfresh.check_cron_job_health',
    'scheduler pgfresh.fence_refresh_lock',
    'scheduler pgfresh.queue_refresh_if_not_exists',
    'scheduler pgfresh.release_refresh_lock',
    'scheduler pgfresh.renew_refresh_lock',
    // Functions of a view run as its reader: this one belongs to scheduled_job_status.
    'scheduler pgfresh_engine.job_problem',
  ]);
});

it('every function that runs with the rights of its owner has a search path of its own, with pg_temp at its end', async () => {
  const functions = await scene.db.query<{ name: string; path: string | null }>(
    `select oid::regprocedure::text as name, (select s from unnest(proconfig) as s where s like 'search_path=%') as path from pg_proc where pronamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace) and prosecdef`,
  );
  expect(functions.length).toBeGreaterThan(40);
  expect(functions.filter(({ path }) => !/^search_path=pg_catalog(, public)?, pg_temp$/.test(path ?? ''))).toEqual([]);
});

describe("users' functions run as the evaluator", () => {
  /** What a function tries, and how that ends. */
  const tries: readonly (readonly [string, RegExp])[] = [
    [`raise 'I am %', current_user`, /^I am pgfresh_evaluator$/],
    ['perform from pgfresh_engine.pairs', /permission denied for table pairs/],
    ['perform from pgfresh.data_type_registry', /permission denied/],
    ['perform from pgfresh.active_subscriptions', /permission denied/],
    ['perform from pgfresh.api_call_queue', /permission denied/],
    [`update pgfresh.sources set enabled = false`, /permission denied|read-only/],
    [`delete from pgfresh_engine.job`, /permission denied|read-only/],
    [`insert into pgfresh.warnings (code) values ('x')`, /permission denied|read-only/],
    [`perform pgfresh.upsert_active_subscription('x', 'x', 'x')`, /permission denied/],
    [`perform pgfresh.queue_refresh_if_not_exists('x', 'x')`, /permission denied/],
    [`perform pgfresh_engine.warn('x', 'x', 'x', 'x')`, /permission denied/],
    [`perform from public.of_others`, /permission denied for table of_others/],
    [`delete from public.mirror`, /permission denied|read-only/],
    [`create table public.mine (id int)`, /permission denied|read-only/],
    [`create function pgfresh.mine() returns int language sql as 'select 1'`, /permission denied|read-only/],
    // It owns these, so without the read-only transaction it could.
    [
      `alter function pgfresh_engine.ask_stale(int, text[], timestamptz[], timestamptz[], timestamptz[], interval, timestamptz) security invoker`,
      /read-only/,
    ],
    [`drop function pgfresh_engine.ask_gate(text, text[], text)`, /read-only/],
    [
      `drop function pgfresh_engine.check_1(text[], timestamptz[], timestamptz[], timestamptz[], interval, timestamptz)`,
      /read-only/,
    ],
    [`grant execute on function pgfresh_engine.ask_keys(text, text[]) to public`, /read-only/],
    [
      `set local transaction_read_only = off; drop function pgfresh_engine.ask_gate(text, text[], text)`,
      /read-write mode/,
    ],
    [
      `begin set local transaction_read_only = off; exception when others then null; end; drop function pgfresh_engine.ask_gate(text, text[], text)`,
      /read-only/,
    ],
    [
      `set local role none; perform from pgfresh_engine.pairs`,
      /cannot set parameter "role" within security-definer function/,
    ],
    [
      `set local session authorization default`,
      /cannot set parameter "session_authorization" within security-definer function/,
    ],
    [`perform from pg_authid`, /permission denied/],
    [`perform pg_read_file('postgresql.conf')`, /permission denied/],
  ];

  beforeAll(async () => {
    await scene.db.query(`
      create table of_others (id int); insert into mirror values ('A', pgfresh.clock());
      create function public.always(timestamptz, interval) returns boolean language sql as 'select true'`);
    await scene.add('tried');
  });

  it.each(tries)('%s', expectRaises);

  it('and cannot reset what keeps them from it, from PostgreSQL 16 on', async () => {
    if ((await scene.value<number>(`current_setting('server_version_num')::int`)) < 160_000) return;
    await expectRaises(
      `reset transaction_read_only; drop function pgfresh_engine.ask_gate(text, text[], text)`,
      /cannot be reset/,
    );
  });

  it('and the caller of the planner goes on with his own rights afterwards', async () => {
    await scene.db.transact('after', async (tx) => {
      await tx.query(`select pgfresh.explain_pair('tried', 'A')`);
      expect(
        await tx.query(
          `select current_user = session_user as same, current_setting('transaction_read_only') as read_only`,
        ),
      ).toEqual([{ same: true, read_only: 'off' }]);
      await tx.query('create table written_afterwards ()');
    });
  });

  it('and leave nothing behind that would be done as whoever asks', async () => {
    await scene.db.query(`
      create table public.seen (who text); grant insert on public.seen to public; create schema evil; grant usage on schema evil to public;
      create function evil.shows() returns int language plpgsql as $$ begin insert into public.seen values (current_user); return 1; end $$;
      create function evil.cardinality(anyarray) returns int language plpgsql as $$ begin perform evil.shows(); return pg_catalog.cardinality($1); end $$;
      create function public.leaves(timestamptz, interval) returns boolean language plpgsql as $$
        begin execute 'declare held cursor with hold for select evil.shows()'; set search_path = evil, pg_catalog; return true; end $$;
      create function public.leaves(text, text) returns boolean language plpgsql as $$
        begin execute 'declare held_too cursor with hold for select evil.shows()'; set search_path = evil, pg_catalog; return true; end $$`);
    await scene.change('tried', { staleness_function: 'leaves', gate_function: 'leaves' });
    // A session of its own, because the path of one that has met this stays another.
    const asking = openDatabase(scene.url, { poolSize: 1 });
    await asking.query(`select pgfresh.explain_pair('tried', 'A')`);
    await scene.subscribe('ann', 'A', 'tried', asking);
    await asking.transact('after', async (tx) => {
      await tx.query('select pgfresh.check_and_queue_stale_data(100)');
      expect(await tx.query(`select pg_catalog.current_setting('search_path') as path`)).not.toEqual([
        { path: 'evil, pg_catalog' },
      ]);
    });
    expect(await scene.db.query('select who from public.seen')).toEqual([]);
    await scene.change('tried', { staleness_function: 'always', gate_function: null });
    await scene.db.query(
      `select pgfresh.remove_active_subscription('ann', 'A', 'tried'); select pgfresh.cancel_queue_jobs(p_data_type => 'tried')`,
    );
  });
});

/** Expects that a function with this body ends so, as a staleness function and as a gate. */
async function expectRaises(body: string, message: RegExp): Promise<void> {
  await scene.db.query(`
    create or replace function public.tries(timestamptz, interval) returns boolean language plpgsql as $f$ begin ${body}; return true; end $f$;
    create or replace function public.tries(text, text) returns boolean language plpgsql as $f$ begin ${body}; return true; end $f$`);
  await scene.change('tried', { staleness_function: 'tries', gate_function: 'tries' });
  await expectNoChange(scene.db, async () => {
    expect((await scene.explain('A', 'tried'))['problem']).toMatch(message);
  });
  // The gate too, behind a staleness function that says stale.
  await scene.change('tried', { staleness_function: 'always' });
  await scene.subscribe('ann', 'A', 'tried');
  expect((await scene.warnings()).find(({ code }) => code === 'gate_raised')?.message).toMatch(message);
  await scene.db.query(`
    select pgfresh.remove_active_subscription('ann', 'A', 'tried'); select pgfresh.cancel_queue_jobs(p_data_type => 'tried');
    delete from pgfresh.warnings; update pgfresh_engine.pairs set demanded = false, next_ask_at = null, confirmed_at = null, seen = true, row_at = null, ok_at = null`);
}

it('the function that each data type has for its check is for the evaluator alone, and goes with the type', async () => {
  const id = await scene.add('checked');
  const signature = `pgfresh_engine.check_${id}(text[], timestamptz[], timestamptz[], timestamptz[], interval, timestamptz)`;
  const mayCall = await scene.db.query<{ role: string; may: boolean }>(
    `select rolname as role, has_function_privilege(rolname, '${signature}', 'execute') as may from pg_roles where rolname like 'pgfresh%' and rolname not like 'pgfresh_test_%' order by 1`,
  );
  expect(mayCall.filter(({ may }) => may).map(({ role }) => role)).toEqual(['pgfresh_evaluator']);
  await scene.db.query(`delete from pgfresh.data_type_registry where data_type = 'checked'`);
  expect(await scene.value(`to_regprocedure('${signature}')`)).toBeNull();
});

it('an operator may see how sources are, and pause and resume them', async () => {
  await scene.db.query(
    `insert into pgfresh.sources (name, rate_limit_per_minute, quota_bytes) values ('limited', 300, 1000000)`,
  );
  const { name, url } = await createLogin(scene.url, 'pgfresh_operator');
  await scene.db.query(`grant select on public.test_clock to ${name}`);
  const db = openDatabase(url, { poolSize: 1 });
  expect(await listSources(db)).toContainEqual(
    expect.objectContaining({ source: 'limited', state: 'ok', calls_free: 56, quota_cap: 950_000 }),
  );
  expect(await pauseSource(db, 'limited')).toMatchObject({ state: 'paused' });
  expect(await examineSources(db)).toContainEqual(
    expect.objectContaining({ name: 'source limited', state: 'warning' }),
  );
  expect(await resumeSource(db, 'limited')).toMatchObject({ state: 'ok' });
  await db.close();
});

it('a monitor reads every table and view of pgfresh, by itself and with what its functions need', async () => {
  await scene.add('watched');
  await scene.subscribe('ann', 'A', 'watched');
  // The clock of a test is a table.
  await scene.db.query('grant select on public.test_clock to pgfresh_monitor');
  const monitor = await openSession((await createLogin(scene.url, 'pgfresh_monitor')).url);
  const names = await scene.value<string[]>(
    `array(select oid::regclass::text from pg_class where relnamespace = 'pgfresh'::regnamespace and relkind in ('r', 'v'))`,
  );
  expect(names.length).toBeGreaterThan(15);
  for (const name of names) await monitor.query(`select * from ${name}`);
  expect(await monitor.query(`select state, reason, viewers from pgfresh.pairs where data_type = 'watched'`)).toEqual([
    { state: 'fresh', reason: null, viewers: expect.any(Number) as number },
  ]);
});

it('the roles that log in may do their work, and no other', async () => {
  await scene.add('worked');
  const sessions: Record<string, Queryable> = {};
  for (const role of ['pgfresh_worker', 'pgfresh_planner', 'pgfresh_gateway', 'pgfresh_monitor', 'pgfresh_evaluator'])
    sessions[role] = await openSession((await createLogin(scene.url, role)).url);
  const tryAs = async (role: string, statement: string) => {
    return sessions[role]!.query(statement).then(
      () => 'done',
      (error: unknown) => (error as { code: string }).code,
    );
  };
  expect({
    worker: [
      await tryAs('pgfresh_worker', 'select pgfresh.get_queue_batch()'),
      await tryAs('pgfresh_worker', `select pgfresh.explain_pair('worked', 'A')`),
      await tryAs('pgfresh_worker', 'select from pgfresh.data_type_registry'),
      await tryAs('pgfresh_worker', 'select pgfresh_engine.plan_due_pairs()'),
      await tryAs('pgfresh_worker', `select pgfresh.pause_source('limited')`),
      await tryAs('pgfresh_worker', `update pgfresh.data_type_registry set ttl = '1 day'`),
      await tryAs('pgfresh_worker', `insert into pgfresh.sources (name) values ('mine')`),
      await tryAs('pgfresh_worker', 'delete from pgfresh_engine.pairs'),
      await tryAs('pgfresh_worker', `select pgfresh_engine.set_node_demand(1, '{}', '{}', '{}')`),
    ],
    planner: [
      await tryAs('pgfresh_planner', 'select pgfresh_engine.plan_due_pairs()'),
      await tryAs('pgfresh_planner', 'select pgfresh.check_and_queue_stale_data()'),
      await tryAs('pgfresh_planner', 'select pgfresh.cleanup_stale_subscriptions()'),
      await tryAs('pgfresh_planner', 'select pgfresh.get_queue_batch()'),
      await tryAs('pgfresh_planner', `select pgfresh.pause_source('limited')`),
    ],
    monitor: [
      await tryAs('pgfresh_monitor', 'select pgfresh_engine.overview()'),
      await tryAs('pgfresh_monitor', 'select from pgfresh.api_call_queue'),
      await tryAs('pgfresh_monitor', 'select from pgfresh.stuck_jobs'),
      await tryAs('pgfresh_monitor', 'select from pgfresh.nodes'),
      await tryAs('pgfresh_monitor', 'select from pgfresh_engine.pairs'),
      await tryAs('pgfresh_monitor', 'select from pgfresh_engine.job'),
      await tryAs('pgfresh_monitor', `select pgfresh.pause_source('limited')`),
      await tryAs('pgfresh_monitor', 'delete from pgfresh.warnings'),
    ],
    gateway: [
      await tryAs(
        'pgfresh_gateway',
        `select pgfresh_engine.set_node_demand(pgfresh_engine.register_process('gateway', 'n'), '{1}', '{A}', '{1}')`,
      ),
      await tryAs('pgfresh_gateway', `select pgfresh.upsert_active_subscription('ann', 'A', 'worked')`),
      await tryAs('pgfresh_gateway', `select from pgfresh.get_active_subscriptions()`),
      await tryAs('pgfresh_gateway', 'select pgfresh_engine.plan_due_pairs()'),
      await tryAs('pgfresh_gateway', 'select pgfresh.get_queue_batch()'),
      await tryAs('pgfresh_gateway', 'delete from pgfresh.data_type_registry'),
    ],
    evaluator: [
      await tryAs('pgfresh_evaluator', `select pgfresh.is_data_stale(now(), 1)`),
      await tryAs('pgfresh_evaluator', `select pgfresh.upsert_active_subscription('ann', 'A', 'worked')`),
      await tryAs('pgfresh_evaluator', 'select from pgfresh_engine.pairs'),
    ],
  }).toEqual({
    worker: ['done', 'done', 'done', '42501', '42501', '42501', '42501', '42501', '42501'],
    planner: ['done', 'done', 'done', '42501', '42501'],
    monitor: ['done', 'done', 'done', 'done', '42501', '42501', '42501', '42501'],
    gateway: ['done', 'done', 'done', '42501', '42501', '42501'],
    evaluator: ['done', '42501', '42501'],
  });
});

describe('roles of the server', () => {
  it('anon and authenticated are viewers if they are there when the schema is migrated', async () => {
    const rights = await readFile(new URL('../../sql/api/supabase.sql', import.meta.url), 'utf8');
    const session = await openSession(scene.url);
    // Roles belong to the whole server; these are made, used and undone in one transaction, so nobody else sees them.
    await session.query('begin');
    try {
      for (const role of ['anon', 'authenticated']) {
        await session.query(`do $$ begin if to_regrole('${role}') is null then create role ${role}; end if; end $$`);
        await session.query(`revoke pgfresh_viewer from ${role}`);
      }
      const callAs = async (role: string) => {
        await session.query(
          `savepoint call; set local role ${role}; set local request.jwt.claims = '{"sub": "${role}"}'`,
        );
        const answer = await session
          .query<{ answer: unknown }>(`select pgfresh.upsert_active_subscription(null, 'A', 'tried') as answer`)
          .then(
            ([row]) => row!.answer,
            (error: unknown) => (error as { code: string }).code,
          );
        await session.query('rollback to call');
        return answer;
      };
      expect([await callAs('anon'), await callAs('authenticated')]).toEqual(['42501', '42501']);
      await session.query(rights);
      expect([await callAs('anon'), await callAs('authenticated')]).toMatchObject([
        { result: 'subscribed' },
        { result: 'subscribed' },
      ]);
    } finally {
      await session.query('rollback');
    }
  });

  it('an owner who is not a superuser can migrate once the roles are there, and has what he needs', async () => {
    const url = await createDatabase({ empty: true });
    const { name, url: ownerUrl } = await createLogin(url, 'pgfresh_evaluator');
    const admin = openDatabase(url, { poolSize: 1 });
    await admin.query(
      `do $$ begin execute format('grant create on database %I to ${name}', current_database()); end $$`,
    );
    const events = new Events();
    const owner = openDatabase(ownerUrl, { poolSize: 2 });
    await migrate(owner, { files: await readSqlFiles(), events });
    await admin.query(
      `create table public.theirs (key text, fetched_at timestamptz); create schema own authorization ${name}`,
    );
    await owner.query(
      `insert into pgfresh.sources (name) values ('market'); create table own.data (key text, fetched_at timestamptz)`,
    );
    const add = (table: string) =>
      owner.query(
        `insert into pgfresh.data_type_registry (data_type, source, table_name, timestamp_column, ttl) values ('quote', 'market', '${table}', 'fetched_at', '1 minute')`,
      );
    const { hint } = await expectRefusal(add('theirs'), 'PGF_REGISTRY_INVALID');
    expect(hint).toContain('grant select on public.theirs to pgfresh_evaluator');
    await add('own.data');
    expect(
      await owner.query(
        `select pgfresh.upsert_active_subscription('ann', 'A', 'quote') -> 'planned' ->> 'queued' as queued`,
      ),
    ).toEqual([{ queued: '1' }]);
    expect(await owner.query(`select pgfresh_engine.plan_due_pairs() ->> 'more' as more`)).toEqual([{ more: 'false' }]);
    const viewer = await openSession((await createLogin(url, 'pgfresh_viewer')).url);
    await viewer.query(`set pgfresh.user_id = 'ben'`);
    expect(
      await viewer.query(`select pgfresh.upsert_active_subscription(null, 'A', 'quote') ->> 'result' as result`),
    ).toEqual([{ result: 'subscribed' }]);
  });
});
