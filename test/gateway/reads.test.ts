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

it('a changed row is read once by each gateway, whatever the number of its viewers', async () => {
  await scene.quote('AAPL', 0);
  const gateways = [await scene.gateway(), await scene.gateway()];
  const clients = [...(await lookAt(gateways[0]!, 1)), ...(await lookAt(gateways[1]!, 100))];
  // Until then transactions count that began before anybody looked.
  await expect.poll(() => scene.value('(select bool_and(settled) from pgfresh.watched_type)')).toBe(true);
  const change = async (price: number): Promise<void> => {
    await scene.quote('AAPL', price);
    const seen = await Promise.all(clients.map((client) => client.next('change')));
    for (const { rows } of seen) expect(rows).toMatchObject([{ price }]);
  };
  await change(1);
  const reads = await countStatements(scene.db, 'read_pairs');
  const polls = await countStatements(scene.db, 'watch_changes');
  for (let price = 2; price <= 6; price++) await change(price);
  await expect.poll(polls).toBeGreaterThanOrEqual(4);
  // Each gateway also reads the marks by itself, so it is told of each change twice.
  expect(await reads()).toBe(5 * gateways.length);
});
