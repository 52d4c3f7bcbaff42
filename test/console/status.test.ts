import { Hono } from 'hono';
import { expect, it } from 'vitest';
import { consoleRoutes } from '../../src/console/index.ts';
import { readOverview } from '../../src/watch/index.ts';
import { QueueScene } from '../queue/scene.ts';

it('truth 3: /status says what is not called, why and until when, before the checks', async () => {
  const { db } = await QueueScene.open();
  const app = new Hono();
  const health = { ready: true, checks: [] };
  consoleRoutes(app, {
    overview: () => readOverview(db),
    status: async () => ({ version: '1', roles: ['console'], database: 'here', health }),
  });
  const page = async () => (await app.request('/status')).text();
  expect(await page()).not.toContain('What is wrong');
  await db.query(`select pgfresh.pause_source('market', '2100-01-01Z', 'maintenance <3')`);
  const wrong = 'market is not called (paused) until 2100-01-01T00:00:00Z: maintenance';
  expect(await page()).toMatch(
    /What is wrong[^]*is not called \(paused\) until 2100-01-01T00:00:00Z: maintenance &lt;3[^]*Checks/,
  );
  expect(await (await app.request('/api/status')).json()).toMatchObject({
    problems: [`${wrong} <3. Next: "pgfresh source resume market" lets it be called again.`],
  });
});
