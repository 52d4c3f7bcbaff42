import { readFile } from 'node:fs/promises';
import { Database, migrate, readSqlFiles } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { sleep } from '../clock.ts';
import type { Scope } from '../scope.ts';
import { type BenchServer, connect } from '../server.ts';
import type { Plan } from './plan.ts';
import { drawSubscriptions } from './subscriptions.ts';

/** Where a size is measured: clones of a database whose subscriptions and pair times are settled. */
export interface Scene {
  readonly subscriptions: number;
  readonly pairs: number;
  readonly stale: number;
  /** A clone with the same content every time. */
  clone(scope: Scope): Promise<string>;
}

const ttlMinutes = 60;

/** pgfresh, the loop, and the tables that both read; no viewers yet. Returns the database's URL. */
export async function buildBase(server: BenchServer, scope: Scope, plan: Plan): Promise<string> {
  const url = await server.createDatabase(scope);
  const events = new Events();
  const database = new Database({ url, events, applicationName: 'pgfresh bench', statementTimeoutMs: 600_000 });
  try {
    await migrate(database, { files: await readSqlFiles(), events });
    await database.query(await readFile(new URL('reference.sql', import.meta.url), 'utf8'));
    await database.query(`insert into pgfresh.sources (name) values ('bench')`);
    for (let type = 1; type <= plan.types; type++) {
      const table = `mirror_${type}`;
      await database.query(`create table ${table} (key text primary key, fetched_at timestamptz not null, value text)`);
      await database.query(
        // Spread evenly over all keys, and the same in every run. Fresh rows stay fresh for the whole run.
        `insert into ${table} select 'key-' || n, clock_timestamp() - case
             when hashint4(n * 31 + ${type}) & 1023 < $2::float8 * 1024 then interval '3 hours' - make_interval(secs => n / 1000.0)
             else make_interval(secs => n / 1000.0) end, repeat('x', 40)
           from generate_series(1, $1::int) as n`,
        [plan.rowsAType, plan.staleShare],
      );
      await database.query(
        `insert into pgfresh.data_type_registry (data_type, source, table_name, key_columns, timestamp_column, ttl)
         values ($1::text, 'bench', $2::text, '{key}', 'fetched_at', make_interval(mins => $3::int))`,
        [typeName(type), table, ttlMinutes],
      );
      await database.query(
        `insert into reference.registry values ($1::text, $2::text, 'key', 'fetched_at', 'is_stale', $3::int, 'on-demand', 0)`,
        [typeName(type), table, ttlMinutes],
      );
    }
    // The columns of a job and the primary key, without the indexes that make it one.
    await database.query('create table bare_job (like pgfresh_engine.job including defaults, primary key (id))');
    await database.query('vacuum (analyze)');
  } finally {
    await database.close();
  }
  return url;
}

export async function buildScene(
  server: BenchServer,
  scope: Scope,
  base: string,
  plan: Plan,
  count: number,
): Promise<Scene> {
  const template = await server.createDatabase(scope, base);
  const { pairs, stale } = await scope.nest(async (inner) => {
    const client = await connect(template, inner);
    const { users, types, keys } = drawSubscriptions(count, plan.types, plan.keys);
    await client.query(
      `insert into pgfresh_engine.subscription (user_id, type_id, key, subscribed_at, last_seen_at)
       select w.user_id, r.type_id, w.key, clock_timestamp(), clock_timestamp()
       from unnest($1::text[], $2::int[], $3::text[]) as w(user_id, type, key)
       join pgfresh.data_type_registry as r on r.data_type = 'type_' || w.type`,
      [users, types, keys],
    );
    await client.query(
      `insert into reference.subscriptions (user_id, key, data_type)
       select w.user_id, w.key, 'type_' || w.type from unnest($1::text[], $2::int[], $3::text[]) as w(user_id, type, key)`,
      [users, types, keys],
    );
    await client.query('analyze pgfresh_engine.pairs, pgfresh_engine.demand_change');
    while ((await numberOf(client, 'select pgfresh_engine.fold_demand(pgfresh.clock()) as n')) > 0);
    // On a busy machine the fold defers some for a second, and the measured ticks would do them.
    while ((await numberOf(client, 'select count(*)::int as n from pgfresh_engine.demand_waiting')) > 0) {
      await sleep(100);
      await client.query('select pgfresh_engine.fold_demand(pgfresh.clock())');
    }
    // As the planner left them when their rows were last written.
    for (let type = 1; type <= plan.types; type++) {
      await client.query(
        `update pgfresh_engine.pairs as p set due_at = m.fetched_at + r.ttl, row_at = m.fetched_at, stale_at = m.fetched_at + r.ttl
         from mirror_${type} as m, pgfresh.data_type_registry as r
         where r.data_type = $1::text and p.type_id = r.type_id and p.key = m.key`,
        [typeName(type)],
      );
    }
    await client.query(
      `truncate pgfresh_engine.due; insert into pgfresh_engine.due select due_at, type_id, key from pgfresh_engine.pairs where demanded order by due_at`,
    );
    // Types were registered one after the other; the planner notes once that what each one names is still the same.
    await client.query(
      'select count(problem) from pgfresh.data_type_registry as r cross join lateral pgfresh_engine.type_problem(r)',
    );
    await client.query(
      'vacuum (full, analyze) pgfresh_engine.pairs, pgfresh_engine.due, pgfresh_engine.demand_change, pgfresh_engine.subscription, pgfresh_engine.type_resolution',
    );
    await client.query('vacuum (analyze) reference.subscriptions');
    return {
      pairs: await numberOf(client, 'select count(*)::int as n from pgfresh_engine.pairs where demanded'),
      stale: await numberOf(
        client,
        'select count(*)::int as n from pgfresh_engine.pairs where due_at <= clock_timestamp()',
      ),
    };
  });
  return { subscriptions: count, pairs, stale, clone: (inner) => server.createDatabase(inner, template) };
}

async function numberOf(client: Awaited<ReturnType<typeof connect>>, text: string): Promise<number> {
  return (await client.query<{ n: number }>(text)).rows[0]!.n;
}

export function typeName(type: number): string {
  return `type_${type}`;
}
