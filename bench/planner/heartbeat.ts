import type { Scope } from '../scope.ts';
import { type BenchServer, connect } from '../server.ts';
import type { Plan } from './plan.ts';

/**
 * The share of a core, in per cent, that the database spends when each client sends one heartbeat in a minute, the
 * cleanup that runs every minute included. Not a number when the server is on another machine.
 */
export async function heartbeatShare(
  server: BenchServer,
  scope: Scope,
  url: string,
  { clients, connections }: Plan['heartbeat'],
): Promise<number> {
  const open = await Promise.all(Array.from({ length: connections }, () => connect(url, scope)));
  const { rows } = await open[0]!.query<{ user_id: string; key: string; data_type: string }>(
    `select distinct on (s.user_id) s.user_id, s.key, r.data_type
     from pgfresh.active_subscriptions as s join pgfresh.data_type_registry as r using (type_id)
     order by s.user_id limit $1::int`,
    [clients],
  );
  if (rows.length < clients) throw new Error(`Only ${rows.length} of ${clients} clients have a subscription.`);
  await server.settle();

  const { cost } = await server.measure(async () => {
    const pending = rows.values();
    const beat = async (client: (typeof open)[number]) => {
      for (const { user_id, key, data_type } of pending) {
        const { rows: answers } = await client.query<{ result: string }>({
          name: 'heartbeat',
          text: `select pgfresh.upsert_active_subscription($1::text, $2::text, $3::text) ->> 'result' as result`,
          values: [user_id, key, data_type],
        });
        if (answers[0]!.result !== 'seen') throw new Error(`A heartbeat was answered with ${answers[0]!.result}.`);
      }
    };
    await Promise.all(open.map(beat));
    await open[0]!.query('select pgfresh.cleanup_stale_subscriptions()');
  });
  return cost.cpuMs === null ? Number.NaN : (100 * cost.cpuMs) / 60_000;
}
