import type pg from 'pg';
import type { Scope } from '../scope.ts';
import { type BenchServer, connect } from '../server.ts';
import type { Plan } from './plan.ts';

interface Subscription {
  readonly user_id: string;
  readonly key: string;
  readonly data_type: string;
}

/**
 * The share of a core, in per cent, that the database spends when each client sends one heartbeat a minute, the
 * cleanup that runs every minute included. A minute takes as long as its calls do; then the database's clock is set
 * forward to the next one. Five of them are the distance of two checkpoints. Not a number when the server is on
 * another machine.
 */
export async function heartbeatShare(
  server: BenchServer,
  scope: Scope,
  url: string,
  { clients, connections, minutes }: Plan['heartbeat'],
): Promise<number> {
  const open = await Promise.all(Array.from({ length: connections }, () => connect(url, scope)));
  const { rows } = await open[0]!.query<Subscription>(
    `select distinct on (s.user_id) s.user_id, s.key, r.data_type
     from pgfresh_engine.subscription as s join pgfresh.data_type_registry as r using (type_id)
     order by s.user_id limit $1::int`,
    [clients],
  );
  if (rows.length < clients) throw new Error(`Only ${rows.length} of ${clients} clients have a subscription.`);
  await server.settle();

  const beat = async (client: pg.Client, pending: Iterable<Subscription>) => {
    for (const { user_id, key, data_type } of pending) {
      const { rows: answers } = await client.query<{ result: string }>({
        name: 'heartbeat',
        text: `select pgfresh.upsert_active_subscription($1::text, $2::text, $3::text) ->> 'result' as result`,
        values: [user_id, key, data_type],
      });
      if (answers[0]!.result !== 'seen') throw new Error(`A heartbeat was answered with ${answers[0]!.result}.`);
    }
  };
  const { cost } = await server.measure(async () => {
    for (let minute = 1; minute <= minutes; minute++) {
      await open[0]!.query(
        `create or replace function pgfresh.clock() returns timestamptz language sql volatile parallel safe
         set search_path = pg_catalog, pg_temp as $$ select pg_catalog.clock_timestamp() + interval '${minute} minutes' $$`,
      );
      const pending = rows.values();
      await Promise.all(open.map((client) => beat(client, pending)));
      await open[0]!.query('select pgfresh.cleanup_stale_subscriptions()');
    }
  });
  return cost.cpuMs === null ? Number.NaN : (100 * cost.cpuMs) / (minutes * 60_000);
}
