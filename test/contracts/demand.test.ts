import pg from 'pg';
import { expect, it } from 'vitest';
import { NodeDemand } from '../../src/demand/index.ts';
import type { Queryable } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { LiveScene } from '../gateway/live-scene.ts';
import { atEnd } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { expectNoChange, expectRefusal } from '../harness/refusal.ts';
import { inSchema } from '../harness/schemas.ts';
import { openSession } from '../harness/session.ts';
import { RegistryScene } from '../registry/scene.ts';

it('contract 7: what 10,000 viewers of 100 pairs write follows the pairs, not the viewers', async () => {
  const [few, many] = [await written(1_000), await written(10_000)];
  expect(many).toEqual(few);
  // Twice each pair: when the first half has come, and when the second has.
  expect(many).toEqual({ node_demand: 200, demand_change: 200 });
});

it('contract 7: one more viewer of one pair writes that pair, and nothing when no number has changed', async () => {
  const scene = await RegistryScene.open({ poolSize: 1 });
  const quote = await scene.add('quote');
  const sent: number[] = [];
  const db: Queryable = {
    query: (statement, values = []) => {
      if ((typeof statement === 'string' ? statement : statement.text).includes('set_node_demand'))
        sent.push((values[2] as string[]).length);
      return scene.db.query(statement, values);
    },
  };
  const demand = new NodeDemand({ db, events: new Events(), nodeName: 'gateway' });
  await demand.renew();
  const rows = async () => {
    await scene.db.query('select pg_stat_force_next_flush()');
    return scene.value<number>(
      `(select (n_tup_ins + n_tup_upd + n_tup_del)::int from pg_stat_user_tables where schemaname = 'pgfresh_engine' and relname = 'node_demand')`,
    );
  };
  for (let pair = 0; pair < 100; pair++) demand.set(quote, `K${pair}`, 1);
  await demand.flush();
  const before = await rows();
  expect(before).toBe(100);
  demand.set(quote, 'K7', 2);
  await demand.flush();
  await demand.flush();
  await demand.renew();
  await demand.flush();
  expect((await rows()) - before).toBe(1);
  expect(sent).toEqual([100, 1]);
});

it('contract 7: what a gateway with 400 connections writes follows its 10 pairs and not its viewers', async () => {
  const scene = await LiveScene.open();
  const running = await scene.gateway({ anonymous: 'loopback' });
  const rows = () =>
    scene.value<number>(
      `(select (n_tup_ins + n_tup_upd + n_tup_del)::int from pg_stat_user_tables where schemaname = 'pgfresh_engine' and relname = 'node_demand')`,
    );
  const since = performance.now();
  const clients = await Promise.all(Array.from({ length: 400 }, () => running.greet(undefined)));
  await Promise.all(clients.map((client, place) => client.want([['quote', 'ABCDEFGHIJ'.charAt(place % 10)]])));
  await expect
    .poll(() => scene.demand(), { timeout: 25_000 })
    .toEqual('ABCDEFGHIJ'.split('').map((key) => `quote ${key} 40`));
  const flushes = Math.ceil((performance.now() - since) / 250);
  await running.stop();
  // Each backend tells what it has written when it is asked to, or when it ends.
  await expect.poll(rows).toBeGreaterThanOrEqual(20);
  expect(await rows()).toBeLessThanOrEqual(10 * (flushes + 1));
});

/** Rows that are written until so many viewers of 100 pairs have come, in two halves. */
async function written(viewers: number): Promise<Record<string, number>> {
  const scene = await RegistryScene.open({ poolSize: 1 });
  const quote = await scene.add('quote');
  // What it is asked for in one session is written down before the next statement.
  const rows = async () => {
    await scene.db.query('select pg_stat_force_next_flush()');
    return scene.db.query<{ name: string; rows: number }>(
      `select relname as name, (n_tup_ins + n_tup_upd + n_tup_del)::int as rows from pg_stat_user_tables where schemaname in ('pgfresh', 'pgfresh_engine') and relname <> 'nodes'`,
    );
  };
  const demand = new NodeDemand({ db: scene.db, events: new Events(), nodeName: 'gateway' });
  await demand.renew();
  const before = Object.fromEntries((await rows()).map(({ name, rows: count }) => [name, count]));
  const counts = Array.from({ length: 100 }, () => 0);
  for (let viewer = 0; viewer < viewers; viewer++) {
    const pair = (viewer * 7) % 100;
    counts[pair]!++;
    demand.set(quote, `K${pair}`, counts[pair]!);
    if (viewer === viewers / 2 - 1) await demand.flush();
  }
  await demand.flush();
  const after = (await rows()).map(({ name, rows: count }) => [name, count - before[name]!] as const);

  // All of them are seen, together with those who speak SQL.
  await scene.subscribe('ann', 'K0');
  const seen = await scene.db.query<{ viewers: number; adapters: string[] }>(
    'select viewers::int, adapters from pgfresh.get_active_subscriptions() order by viewers desc',
  );
  expect(seen).toHaveLength(100);
  expect(seen[0]).toEqual({ viewers: viewers / 100 + 1, adapters: ['gateway', 'heartbeat'] });
  expect(seen.reduce((sum, row) => sum + row.viewers, 0)).toBe(viewers + 1);
  await scene.tick();
  expect(await scene.value('(select sum(viewers)::int from pgfresh_engine.pairs)')).toBe(viewers + 1);
  return Object.fromEntries(after.filter(([, count]) => count > 0));
}

it('contract 13: there is no TTL but that of the registry, and 0 and -1 are refused everywhere', async () => {
  const scene = await RegistryScene.open();
  await expect(scene.value('pgfresh.is_data_stale(now())')).rejects.toMatchObject({ code: '42883' });
  for (const ttl of [`interval '0'`, `interval '-1 minute'`, 'null::interval', '0', '-1', 'null::int'])
    for (const time of ['now()', 'null', `'infinity'`])
      await expectRefusal(scene.value(`pgfresh.is_data_stale(${time}, ${ttl})`), 'PGF_ARGUMENT_INVALID');
  expect(
    await scene.value(
      `array(select oid::regprocedure::text from pg_proc where pronamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace) and pg_get_function_arguments(oid) ~* 'ttl[^,]* default')`,
    ),
  ).toEqual([]);

  await expectNoChange(scene.db, async () => {
    for (const ttl of ['0', '-1 minute', null])
      await expectRefusal(scene.add('quote', { ttl }), 'PGF_REGISTRY_INVALID');
    for (const empty_ttl of ['0', '-1 minute'])
      await expectRefusal(scene.add('quote', { empty_ttl }), 'PGF_REGISTRY_INVALID');
    await expectRefusal(
      scene.db.query(
        `insert into pgfresh.data_type_registry (data_type, source, table_name, timestamp_column) values ('quote', 'market', 'mirror', 'fetched_at')`,
      ),
      'PGF_REGISTRY_INVALID',
    );
  });

  // Nor does a TTL of a single row get through, whoever is asked.
  await scene.db.query(`
    create table timed (key text, fetched_at timestamptz, minutes int); insert into timed values ('zero', pgfresh.clock(), 0), ('minus', pgfresh.clock(), -1), ('good', pgfresh.clock(), 1);
    create function public.never(timestamptz, int) returns boolean language sql as 'select false'`);
  for (const staleness_function of ['pgfresh.is_data_stale', 'never']) {
    const type = staleness_function.replace('.', '_');
    await scene.add(type, { table_name: 'timed', ttl_column: 'minutes', staleness_function });
    for (const key of ['zero', 'minus']) {
      expect(await scene.subscribe('ann', key, type)).toMatchObject({ planned: { failed: 1, queued: 1 } });
      expect(await scene.explain(key, type)).toMatchObject({
        problem: expect.stringContaining('a TTL must be positive') as string,
      });
    }
    expect(await scene.subscribe('ann', 'good', type)).toMatchObject({ planned: { failed: 0, queued: 0 } });
  }
});

it('contract 18: a viewer can subscribe, leave, check and ask about what they look at, and nothing else', async () => {
  const scene = await RegistryScene.open();
  await scene.add('quote');
  const { name, url } = await createLogin(scene.url, 'pgfresh_viewer');
  const viewer = await openSession(url);
  await viewer.query(`select set_config('request.jwt.claims', '{"sub": "ann"}', false)`);
  const may = [
    'check_and_queue_stale_batch',
    'explain_pair',
    'remove_active_subscription',
    'upsert_active_subscription',
    'upsert_active_subscriptions',
  ].map(inSchema);
  const definers = `select proname from pg_proc where pronamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace)
    and prosecdef and has_function_privilege('pgfresh_viewer', oid, 'execute')`;
  expect(await scene.db.query(definers)).toEqual([]);

  // What they may do has its effect.
  expect(await scene.subscribe(null, 'A', 'quote', viewer)).toMatchObject({
    result: 'subscribed',
    planned: { queued: 1 },
  });
  expect(await viewer.query(`select pgfresh.check_and_queue_stale_batch('B', '{quote}') as answer`)).toMatchObject([
    { answer: { quote: { queued: 1 } } },
  ]);
  expect(await viewer.query(`select pgfresh.explain_pair('quote', 'A') ->> 'reason' as reason`)).toEqual([
    { reason: 'queued' },
  ]);
  expect(await scene.queued()).toEqual(['A', 'B']);
  // For themselves only, though the schemas' owner acts.
  await expectRefusal(scene.leave('ben', 'A', 'quote', viewer), 'PGF_VIEWER_OTHER');
  expect(await scene.leave(null, 'A', 'quote', viewer)).toBe(true);

  await expectNoChange(scene.db, async () => {
    const functions = await scene.db.query<{ name: string; args: string[] }>(
      `select oid::regproc::text as name, array(select format('%snull::%s', case when provariadic <> 0 and place = pronargs then 'variadic ' end, format_type(a, null)) from unnest(proargtypes) with ordinality as t(a, place) order by place) as args from pg_proc where pronamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace) and prokind = 'f'`,
    );
    expect(functions.length).toBeGreaterThan(80);
    const called = new Set<string>();
    for (const { name: tried, args } of functions) {
      const state = await stateOf(viewer.query(`select ${tried}(${args.join(', ')})`));
      if (state !== '42501') called.add(tried);
    }
    expect([...called].toSorted()).toEqual(may);

    const relations = await scene.db.query<{ name: string; kind: string }>(
      `select oid::regclass::text as name, relkind as kind from pg_class where relnamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace) and relkind in ('r', 'p', 'v', 'm', 'S')`,
    );
    expect(relations.length).toBeGreaterThan(25);
    for (const { name: relation, kind } of relations) {
      const harm = {
        S: ["select nextval('?')", "select setval('?', 1)", 'select from ?', 'drop sequence ?'],
        v: ['select from ?', 'drop view ?'],
        table: [
          'select from ?',
          'insert into ? default values',
          'delete from ?',
          'truncate ?',
          'copy ? to stdout',
          'drop table ?',
        ],
      }[kind === 'S' || kind === 'v' ? kind : 'table'];
      const got: string[] = [];
      for (const statement of harm) got.push(await stateOf(viewer.query(statement.replace('?', relation))));
      // Their own subscriptions, of which there are none.
      const seen = relation === 'pgfresh.active_subscriptions' ? ['done'] : [];
      expect([relation, ...new Set(got)]).toEqual([relation, ...seen, '42501']);
    }

    for (const statement of [
      'create table pgfresh.mine (id int)',
      `create function pgfresh.mine() returns int language sql as 'select 1'`,
      'create view pgfresh.mine as select 1',
      'set role pgfresh_gateway',
      'set role pgfresh_worker',
      'set role pgfresh_evaluator',
      'grant pgfresh_worker to current_user',
      `alter role ${name} createrole`,
      'alter function pgfresh.clock() security definer',
      'drop schema pgfresh cascade',
    ])
      expect([statement, await stateOf(viewer.query(statement))]).toEqual([statement, '42501']);
  });
});

it('contract 18: what a viewer makes in pg_temp is not used instead of ours or of the users', async () => {
  const scene = await RegistryScene.open();
  await scene.db.query(`
    create table rules (minutes int); insert into rules values (5); grant select on rules to pgfresh_evaluator;
    create function public.judge(at timestamptz, ttl interval) returns boolean language sql stable as 'select at + make_interval(mins => minutes) <= pgfresh.clock() from rules';
    create function public.open(key text, data_type text) returns boolean language sql stable as 'select minutes = 5 from rules';
    create table symbols (key text); insert into symbols values ('A'), ('B');
    insert into mirror values ('A', pgfresh.clock() - interval '6 minutes'), ('B', pgfresh.clock() - interval '4 minutes')`);
  await scene.add('quote', {
    staleness_function: 'judge',
    gate_function: 'open',
    key_table: 'symbols',
    key_table_column: 'key',
  });
  const viewer = await openSession((await createLogin(scene.url, 'pgfresh_viewer')).url);
  const relations = await scene.value<string[]>(
    `array(select distinct relname::text from pg_class where relnamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace, 'public'::regnamespace) and relkind in ('r', 'p', 'v') and not relispartition)`,
  );
  await viewer.query(`
    ${relations
      .filter((name) => name !== 'mirror' && name !== 'symbols' && name !== 'rules')
      .map((name) => `create temp table ${name} (key text);`)
      .join('\n')}
    create temp table mirror (key text, fetched_at timestamptz); insert into mirror values ('A', 'infinity'), ('B', '-infinity'), ('C', null);
    create temp table symbols (key text); insert into symbols values ('C');
    create temp table rules (minutes int); insert into rules values (4);
    create temp table pg_class (key text); create temp table pg_proc (key text); create temp table pg_namespace (key text); create temp table pg_roles (key text);
    create temp sequence job_id;
    create function pg_temp.clock() returns timestamptz language sql as $$ select 'infinity'::timestamptz $$;
    create function pg_temp.judge(timestamptz, interval) returns boolean language sql as 'select true';
    create function pg_temp.open(text, text) returns boolean language sql as 'select false';
    create function pg_temp.refuse(text, text, text) returns void language sql as '';
    create function pg_temp.require_viewer(text) returns text language sql as $$ select 'root' $$;
    create function pg_temp.caller() returns name language sql as $$ select 'postgres'::name $$;
    create function pg_temp.pg_has_role(name, name, text) returns boolean language sql as 'select true';
    create function pg_temp.format(text, variadic text[]) returns text language sql as $$ select 'drop schema pgfresh cascade' $$;
    set search_path = pg_temp, public, pgfresh, pg_catalog;
    select set_config('pgfresh.user_id', 'ann', false)`);

  expect(await scene.subscribe(null, 'A', 'quote', viewer)).toMatchObject({ planned: { stale: 1, queued: 1 } });
  expect(await scene.subscribe(null, 'B', 'quote', viewer)).toMatchObject({ planned: { stale: 0, queued: 0 } });
  await expectRefusal(scene.subscribe(null, 'C', 'quote', viewer), 'PGF_KEY_UNKNOWN');
  await expectRefusal(scene.subscribe('ben', 'A', 'quote', viewer), 'PGF_VIEWER_OTHER');
  await viewer.query(`select pgfresh.check_and_queue_stale_batch('B', '{quote}')`);
  expect(await scene.queued()).toEqual(['A']);
  expect(await scene.value('array(select key from pgfresh_engine.subscription order by key)')).toEqual(['A', 'B']);
  expect(await scene.leave(null, 'B', 'quote', viewer)).toBe(true);
  expect(
    await viewer.query(
      'select (select count(*) from pg_temp.subscription)::int as rows, (select count(*) from pg_temp.pairs)::int as pairs',
    ),
  ).toEqual([{ rows: 0, pairs: 0 }]);
});

it('contract 18: what anybody makes in a schema of their own is not run with our rights, whatever their search path', async () => {
  const scene = await RegistryScene.open();
  await scene.add('quote');
  const reached: string[] = [];
  const sessions: { readonly role: string; readonly client: pg.Client }[] = [];
  const roles = ['viewer', 'gateway', 'worker', 'planner', 'scheduler', 'monitor', 'operator'];
  for (const role of roles) {
    const { name, url } = await createLogin(scene.url, `pgfresh_${role}`);
    await scene.db.query(`create schema "of ${role}" authorization ${name}`);
    const client = new pg.Client(url);
    await client.connect();
    atEnd(() => client.end());
    await client.query(`set search_path = "of ${role}", pg_catalog`);
    await client.query('set check_function_bodies = off');
    await client.query(shadows);
    await client.query(`select set_config('pgfresh.user_id', 'quote', false)`);
    sessions.push({ role, client });
  }
  const functions = await scene.db.query<{
    signature: string;
    role: string;
    name: string;
    types: string[];
    path: string;
  }>(
    `select f.oid::regprocedure::text as signature, role, f.oid::regproc::text as name, substr(s, 13) as path,
       array(select format_type(a, null) from unnest(f.proargtypes) with ordinality as t(a, place) order by place) as types
     from pg_proc as f cross join unnest($1::text[]) as role left join unnest(f.proconfig) as s on s like 'search_path=%'
     where f.pronamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace) and f.prosecdef and has_function_privilege('pgfresh_' || role, f.oid, 'execute')`,
    [roles],
  );
  /** Calls each with nothing, with nulls, and with something of each type; what it says does not matter. */
  const attack = async ({ role, name, types }: (typeof functions)[number]): Promise<void> => {
    const { client } = sessions.find((session) => session.role === role)!;
    for (const value of [undefined, () => 'null', sampleOf]) {
      const args = value === undefined ? '' : types.map((type) => `${value(type)}::${type}`).join(', ');
      await client.query('begin');
      const said = await client.query(`select ${name}(${args})`).then(
        () => '',
        (error: unknown) => (error as Error).message,
      );
      if (said.includes('shadow')) reached.push(name);
      await client.query('rollback');
    }
  };
  for (const one of functions) await attack(one);
  expect(reached).toEqual([]);

  // And it is the pinned path by which that fails: without it, most of them would have used what is there. The others
  // only call functions that pin their own.
  const safe: string[] = [];
  for (const one of functions) {
    reached.length = 0;
    await scene.db.query(`alter function ${one.signature} reset search_path`);
    await attack(one);
    await scene.db.query(`alter function ${one.signature} set search_path = ${one.path}`);
    if (reached.length === 0) safe.push(`${one.role} ${one.name}`);
  }
  expect(functions.length).toBeGreaterThan(80);
  expect(safe.length).toBeLessThan(functions.length / 4);
  expect(safe.filter((name) => name.startsWith('viewer '))).toEqual([]);
}, 60_000);

/** Something that the type can hold; a viewer's own subscription where there is one. */
function sampleOf(type: string): string {
  if (type.endsWith('[]')) return `'{${sampleOf(type.slice(0, -2)).replaceAll("'", '')}}'`;
  const samples: Readonly<Record<string, string>> = {
    text: `'quote'`,
    interval: `'1 minute'`,
    'timestamp with time zone': `'2026-01-05'`,
    uuid: `'00000000-0000-4000-8000-000000000000'`,
    jsonb: `'{}'`,
    boolean: `'false'`,
  };
  return samples[type] ?? `'1'`;
}

/**
 * Operators and functions that ours use without naming their schema. The body of each is read when a statement with it is
 * planned, and names something that is not there, so it is noticed also where there is no row to run it for.
 */
const shadows = [
  ...[
    'text',
    'int',
    'bigint',
    'boolean',
    'timestamptz',
    'interval',
    'name',
    'numeric',
    'uuid',
    'text[]',
    'int[]',
    'jsonb',
  ].flatMap((type) =>
    ['=', '<>', '<', '>', '<=', '>='].map((operator) => ({ operator, left: type, right: type, gives: 'boolean' })),
  ),
  ...['~', '!~', '~*'].map((operator) => ({ operator, left: 'text', right: 'text', gives: 'boolean' })),
  { operator: '||', left: 'text', right: 'text', gives: 'text' },
  { operator: '||', left: 'jsonb', right: 'jsonb', gives: 'jsonb' },
  { operator: '->', left: 'jsonb', right: 'text', gives: 'jsonb' },
  { operator: '->>', left: 'jsonb', right: 'text', gives: 'text' },
  { operator: '+', left: 'timestamptz', right: 'interval', gives: 'timestamptz' },
  { operator: '-', left: 'timestamptz', right: 'interval', gives: 'timestamptz' },
  { operator: '-', left: 'timestamptz', right: 'timestamptz', gives: 'interval' },
  { name: 'cardinality', args: 'anyarray', gives: 'int' },
  { name: 'length', args: 'text', gives: 'int' },
  { name: 'upper', args: 'text', gives: 'text' },
  { name: 'lower', args: 'text', gives: 'text' },
  { name: 'clock_timestamp', args: '', gives: 'timestamptz' },
  { name: 'pg_is_in_recovery', args: '', gives: 'boolean' },
  { name: 'pg_try_advisory_xact_lock', args: 'int, int', gives: 'boolean' },
  { name: 'pg_has_role', args: 'name, name, text', gives: 'boolean' },
  { name: 'current_setting', args: 'text, boolean', gives: 'text' },
]
  .map((shadow, place) => {
    const name = 'operator' in shadow ? `op${place}` : shadow.name;
    const args = 'operator' in shadow ? `${shadow.left}, ${shadow.right}` : shadow.args;
    const made = `create function ${name}(${args}) returns ${shadow.gives} language sql as 'select shadow()';`;
    if (!('operator' in shadow)) return made;
    const { operator, left, right } = shadow;
    return `${made} create operator ${operator} (leftarg = ${left}, rightarg = ${right}, function = ${name});`;
  })
  .join('\n');

async function stateOf(act: Promise<unknown>): Promise<string> {
  return act.then(
    () => 'done',
    (error: unknown) => (error as { code: string }).code,
  );
}
