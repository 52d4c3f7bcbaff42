import { expect, it } from 'vitest';
import { GatewayScene, sees } from './scene.ts';

const scene = await GatewayScene.open();

it('a pump that stops gives its duty back, so that the next one need not wait for the lease to end', async () => {
  const { gateway, look } = await scene.gateway();
  await (await look('A')).until(sees(undefined));
  const holders = () => scene.db.query(`select holder from pgfresh_engine.duty where name = 'pump'`);
  await expect.poll(holders).toHaveLength(1);
  await gateway.stop();
  expect(await holders()).toEqual([]);
});
