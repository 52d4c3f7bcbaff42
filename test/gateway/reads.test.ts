import { beforeAll, expect, it } from 'vitest';
import { countStatements, createCountingDatabase } from '../harness/statements.ts';
import type { LiveClient } from './live-client.ts';
import { LiveScene, type RunningGateway } from './live-scene.ts';

let scene: LiveScene;
beforeAll(async () => {
  scene = await LiveScene.open(await createCountingDatabase());
});

async function lookAt(gateway: RunningGateway, viewers: number): Promise<LiveClient[]> {
  const clients = await Promise.all(Array.from({ length: viewers }, (_, n) => gateway.greet(`user ${n}`)));
  await Promise.all(clients.map((client) => client.want([['quote', 'AAPL']])));
  await Promise.all(clients.map((client) => client.next('snapshot')));
  return clients;
}

it('each gateway reads a changed row once, however many viewers it has', { timeout: 60_000 }, async () => {
  await scene.quote('AAPL', 0);
  const gateways = [await scene.gateway(), await scene.gateway()];
  const clients = [...(await lookAt(gateways[0]!, 1)), ...(await lookAt(gateways[1]!, 100))];
  const polls = await countStatements(scene.db, 'watch_changes');
  // Each gateway also polls the outbox about once per second.
  const polled = async (): Promise<void> => {
    const before = await polls();
    await expect.poll(polls).toBeGreaterThanOrEqual(before + 2 * gateways.length);
  };
  // A statement is counted when its session has finished it, which is after its answer.
  const active = `(select count(*)::int from pg_stat_activity where datname = current_database() and state = 'active' and pid <> pg_backend_pid())`;
  const counted = () => expect.poll(() => scene.value(active)).toBe(0);
  const change = async (price: number): Promise<void> => {
    await scene.quote('AAPL', price);
    const seen = await Promise.all(clients.map((client) => client.next('change')));
    for (const { rows } of seen) expect(rows).toMatchObject([{ price }]);
  };
  // Until then, transactions that began before the type was watched make the whole type count as changed.
  // That includes transactions in other databases of the server.
  await expect
    .poll(() => scene.value('(select bool_and(settled) from pgfresh_engine.watched_type)'), { timeout: 25_000 })
    .toBe(true);
  await polled();
  await counted();
  const reads = await countStatements(scene.db, 'read_pairs');
  for (let price = 1; price <= 5; price++) await change(price);
  await polled();
  await counted();
  // By then each gateway was notified twice of each change.
  expect(await reads()).toBe(5 * gateways.length);
});
