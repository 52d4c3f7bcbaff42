import { rm, symlink, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { resolveConfig } from '../../src/config/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { CliProcess, runCli } from '../harness/process.ts';
import { Provider } from '../harness/provider.ts';
import { quoteType, RefreshScene } from '../refresh/scene.ts';
import { drained, startWorker, until } from '../worker/scene.ts';

test('contract 10: a worker whose clock jumps by hours writes the times of the database, also of an answer of the cache', async () => {
  const provider = await Provider.start();
  provider.json('/price/AAPL', { symbol: 'AAPL', price: 1 });
  const url = await createDatabase();
  const db = openDatabase(url);
  for (const table of ['quote', 'copy']) {
    await db.query(
      `create table public.${table} (symbol text primary key, price numeric, told_at timestamptz, fetched_at timestamptz)`,
    );
  }
  const cwd = await temporaryFolder('clock');
  await symlink(resolve('node_modules'), join(cwd, 'node_modules'));
  await writeFile(
    join(cwd, 'pgfresh.config.ts'),
    `import { defineConfig, defineDataType, defineSource } from 'pgfresh';
    import { z } from 'zod';
    const source = defineSource({ name: 'market', baseUrl: '${provider.url}', allowPrivateAddresses: true });
    const [quote, copy] = ['quote', 'copy'].map((name) => defineDataType({
      name, source, table: name, key: 'symbol', timestamp: 'fetched_at', ttl: '1h',
      schema: z.object({ symbol: z.string(), price: z.number() }),
      request: (key) => ({ url: '/price/' + key }),
      rows: (answer, { fetchedAt }) => ({ ...answer, told_at: fetchedAt.toISOString() }),
    }));
    export default defineConfig({ dataTypes: [quote, copy] });`,
  );
  const env = { DATABASE_URL: url };
  expect(await runCli(['migrate'], { cwd, env })).toMatchObject({ code: 0 });
  // Each look at the clock of the process shows another hour, from five hours ago on.
  const code = `
    const RealDate = Date;
    let hours = -5;
    const wrong = () => RealDate.now() + hours++ * 3_600_000;
    globalThis.Date = class extends RealDate {
      constructor(...given) { super(...(given.length === 0 ? [wrong()] : given)); }
      static now() { return wrong(); }
    };`;
  const wild = { ...env, NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(code)}` };
  const worker = new CliProcess(['worker', '--port', '0'], { cwd, env: wild });
  const before = performance.now();
  for (const type of ['quote', 'copy']) {
    await db.query(`select count(*) from pgfresh_engine.queue_refreshes($1::text, '{AAPL}')`, [type]);
    // Old enough that the next one, which comes from the cache, could be told from one of now.
    const old = `select from public.${type} where fetched_at < clock_timestamp() - interval '1 second'`;
    await until(async () => (await db.query(old)).length === 1);
  }
  const ages = await db.query<{ fetched: number; told: number }>(
    `select extract(epoch from clock_timestamp() - fetched_at)::float8 as fetched, extract(epoch from clock_timestamp() - told_at)::float8 as told from (select * from quote union all select * from copy) as t`,
  );
  const most = (performance.now() - before) / 1000;
  for (const age of ages.flatMap(({ fetched, told }) => [fetched, told])) {
    expect(age).toBeGreaterThanOrEqual(0);
    expect(age).toBeLessThan(most);
  }
  expect(provider.asked).toEqual(['/price/AAPL']);
  const [same] = await db.query(
    `select abs(extract(epoch from q.fetched_at - c.fetched_at)) < 0.5 as same from quote as q join copy as c using (symbol)`,
  );
  expect(same).toEqual({ same: true });
  worker.signal('SIGTERM');
  expect(await worker.exit).toBe(0);
  await rm(cwd, { recursive: true });
});

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
  const count = async (): Promise<number> => {
    const [row] = await scene.db.query<{ count: number }>(
      `select count(*)::int as count from pg_stat_activity where datname = current_database() and backend_type = 'client backend' and application_name <> 'pgfresh test'`,
    );
    return row!.count;
  };
  const look = async (): Promise<void> => void (most = Math.max(most, await count()));
  const worker = await startWorker(scene, { db });
  // A session ends a moment after its client has closed it.
  await until(async () => (await count()) <= poolSize + 2);
  const watching = setInterval(() => void look().catch(() => {}), 5);
  await drained(scene);
  clearInterval(watching);
  await look();
  await worker.stop();
  expect(await scene.value(`select count(*)::int from pgfresh_engine.history_succeeded where outcome = 'fresh'`)).toBe(
    500,
  );
  expect(most).toBeGreaterThan(2);
  expect(most).toBeLessThanOrEqual(poolSize + 2);
});

test('contract 21: a trickling body is cut at 10 s and counted as a failure, and the worker stays busy', async () => {
  const scene = await RefreshScene.open([quoteType({ name: 'slow', source: 'sluggish' }), quoteType()], ['sluggish']);
  // Sources that say nothing about a time limit.
  const { sources } = resolveConfig({
    config: {
      sources: ['market', 'sluggish'].map((name) => ({
        name,
        baseUrl: scene.provider.url,
        allowPrivateAddresses: true,
        cacheEntries: 0,
      })),
    },
  });
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
  expect(ms).toBeLessThan(15_000);
  expect(meanwhile).toBeGreaterThan(10);
  expect(await scene.value(`select failure_streak from pgfresh.sources where name = 'sluggish'`)).toBe(1);
  await worker.stop();
});
