import { Hono } from 'hono';
import { expect, it } from 'vitest';
import { consoleRoutes } from '../../src/console/index.ts';
import { troubledJobs } from '../../src/schedule/index.ts';
import { readOverview } from '../../src/watch/index.ts';
import { QueueScene } from '../queue/scene.ts';

it('truth 3: /status says what is not called, why and until when, before the checks', async () => {
  const { db } = await QueueScene.open();
  const app = new Hono();
  const health = { ready: true, checks: [] };
  consoleRoutes(app, {
    overview: () => readOverview(db),
    jobs: async () => [],
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

it('/status says which jobs are not well, and what to do', async () => {
  const { db } = await QueueScene.open();
  const app = new Hono();
  consoleRoutes(app, {
    overview: async () => undefined,
    jobs: () => troubledJobs(db),
    status: async () => ({ version: '1', roles: ['console'], database: 'here', health: { ready: true, checks: [] } }),
  });
  const problems = async () => ((await (await app.request('/api/status')).json()) as { problems: string[] }).problems;
  expect(await problems()).toEqual([]);
  await db.query(`insert into pgfresh.scheduled_jobs (name, kind, function_name, schedule)
    select 'report' || n, 'handler', 'report', '@daily' from generate_series(10, 31) as n`);
  const told = await problems();
  expect(told[0]).toBe(
    'The job report10: no scheduler that runs has the handler report. Next: Start one with a configuration that has it.',
  );
  expect(told.slice(20)).toEqual(['2 more jobs are not well: "pgfresh jobs list" shows them.']);
  await db.query('update pgfresh.scheduled_jobs set enabled = false');
  expect(await problems()).toEqual([]);
});

it('/status says what it cannot read, instead of looking healthy', async () => {
  const { db } = await QueueScene.open();
  const app = new Hono();
  consoleRoutes(app, {
    overview: () => readOverview(db),
    jobs: () => troubledJobs(db),
    status: async () => ({ version: '1', roles: ['console'], database: 'here', health: { ready: true, checks: [] } }),
  });
  await db.query('alter schema pgfresh rename to gone');
  const { problems } = (await (await app.request('/api/status')).json()) as { problems: string[] };
  expect(problems).toEqual([
    'What is not called or refreshed now cannot be read: the database does not answer this page. Next: pgfresh check',
    'Which jobs are not well cannot be read: the database does not answer this page. Next: pgfresh check',
  ]);
});
