import { expect, test } from 'vitest';
import { openDatabase } from '../harness/database.ts';
import { quoteType, RefreshScene } from '../refresh/scene.ts';
import { drained, startWorker } from '../worker/scene.ts';

test('contract 19: 50 types and 500 jobs need no more than the pool, the lease and the listener', async () => {
  const types = Array.from({ length: 50 }, (_, n) => quoteType({ name: `type${n}` }));
  const scene = await RefreshScene.open(types);
  scene.provider.answers.set('*', (request, response) => {
    const symbol = request.url!.split('/').at(-1);
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ symbol, price: 1, at: '2026-01-05T12:00:00Z' }));
  });
  for (const { name } of types)
    await scene.enqueue(
      name,
      Array.from({ length: 10 }, (_, n) => `${name.toUpperCase()}N${n}`),
    );
  const poolSize = 4;
  const db = openDatabase(scene.url, { poolSize, applicationName: 'pgfresh worker' });
  let most = 0;
  const look = async (): Promise<void> => {
    const [row] = await scene.db.query<{ count: number }>(
      `select count(*)::int as count from pg_stat_activity where datname = current_database() and application_name in ('pgfresh worker', 'pgfresh lease', 'pgfresh listen')`,
    );
    most = Math.max(most, row!.count);
  };
  const worker = await startWorker(scene, { db });
  const watching = setInterval(() => void look().catch(() => {}), 5);
  await drained(scene);
  clearInterval(watching);
  await look();
  await worker.stop();
  expect(await scene.value(`select count(*)::int from pgfresh.history_succeeded where outcome = 'fresh'`)).toBe(500);
  expect(most).toBeGreaterThan(2);
  expect(most).toBeLessThanOrEqual(poolSize + 2);
});

test('contract 21: a trickling body is cut at 10 s and counted as a failure, and the worker stays busy', async () => {
  const scene = await RefreshScene.open([quoteType({ name: 'slow', source: 'sluggish' }), quoteType()], ['sluggish']);
  const sources = scene.config.sources.map((source) => ({ ...source, timeout: 10_000 }));
  scene.provider.answers.set('/quote/SLOW', (_request, response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': 1_000 });
    const timer = setInterval(() => response.write(' '), 100);
    response.on('close', () => clearInterval(timer));
  });
  scene.quote('QUICK', 1);
  const worker = await startWorker(scene, { sources });
  const ended = Promise.withResolvers<number>();
  const since = performance.now();
  scene.events.on('refresh.ended', ({ key, outcome }) => {
    if (key === 'SLOW') ended.resolve(outcome === 'timeout' ? performance.now() - since : -1);
  });
  await scene.enqueue('slow', ['SLOW']);
  let meanwhile = 0;
  let next = Promise.withResolvers<void>();
  scene.events.on('refresh.ended', ({ key }) => {
    if (key !== 'QUICK') return;
    meanwhile++;
    next.resolve();
  });
  const busy = (async () => {
    for (let done = false; !done;) {
      next = Promise.withResolvers<void>();
      await scene.enqueue('quote', ['QUICK']);
      done = await Promise.race([ended.promise.then(() => true), next.promise.then(() => false)]);
    }
  })();
  const ms = await ended.promise;
  await busy;
  expect(ms).toBeGreaterThan(9_500);
  expect(ms).toBeLessThan(12_000);
  expect(meanwhile).toBeGreaterThan(50);
  expect(await scene.value(`select failure_streak from pgfresh.sources where name = 'sluggish'`)).toBe(1);
  await worker.stop();
});
