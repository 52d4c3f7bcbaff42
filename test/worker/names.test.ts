import { symlink, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, it } from 'vitest';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { CliProcess, runCli } from '../harness/process.ts';
import { Provider } from '../harness/provider.ts';
import { RefreshScene } from '../refresh/scene.ts';
import { drained, startWorker, until } from './scene.ts';

it('truth 13: a worker is called by its host and process id, or as it is told, also when it is gone', async () => {
  const scene = await RefreshScene.open();
  for (const [key, options] of [
    ['A', {}],
    ['B', { workerName: 'west 1' }],
  ] as const) {
    scene.quote(key, 1);
    const worker = await startWorker(scene, options);
    await scene.enqueue('quote', [key]);
    await drained(scene);
    await worker.stop();
  }
  expect(await scene.db.query('select key, locked_by from pgfresh.api_call_queue order by key')).toEqual([
    { key: 'A', locked_by: `${hostname()}:${process.pid}` },
    { key: 'B', locked_by: 'west 1' },
  ]);
});

it('truth 13: PGFRESH_WORKER_NAME names a process in the queue and in the runs of its jobs', async () => {
  const provider = await Provider.start();
  provider.json('/quote/AAPL', { symbol: 'AAPL', price: 1 });
  const url = await createDatabase();
  const db = openDatabase(url);
  await db.query('create table public.quote (symbol text primary key, price numeric, fetched_at timestamptz)');
  const cwd = await temporaryFolder('names');
  await symlink(resolve('node_modules'), join(cwd, 'node_modules'));
  await writeFile(
    join(cwd, 'pgfresh.config.ts'),
    `import { defineConfig, defineDataType, defineSource } from 'pgfresh';
    import { z } from 'zod';
    const source = defineSource({ name: 'market', baseUrl: '${provider.url}', allowPrivateAddresses: true });
    export default defineConfig({ dataTypes: [defineDataType({
      name: 'quote', source, table: 'quote', key: 'symbol', timestamp: 'fetched_at', ttl: '1h',
      schema: z.object({ symbol: z.string(), price: z.number() }),
      request: (key) => ({ url: '/quote/' + key }), rows: (answer) => answer,
    })] });`,
  );
  const env = { DATABASE_URL: url, PGFRESH_WORKER_NAME: 'west 1' };
  expect(await runCli(['migrate'], { cwd, env })).toMatchObject({ code: 0 });
  expect((await runCli(['config'], { cwd, env })).stdout).toMatch(
    /^workerName\s+west 1\s+environment\s+PGFRESH_WORKER_NAME\s+--worker-name$/m,
  );
  const child = new CliProcess(['run', '--roles', 'worker,scheduler', '--port', '0'], { cwd, env });
  await until(async () => (await db.query(`select from pgfresh_engine.process where kind = 'scheduler'`)).length === 1);
  await db.query(`select count(*) from pgfresh_engine.queue_refreshes('quote', '{AAPL}')`);
  await until(async () => (await db.query('select from public.quote')).length === 1);
  expect(await db.query('select locked_by from pgfresh.api_call_queue')).toEqual([{ locked_by: 'west 1' }]);
  expect(await db.query('select kind, name from pgfresh_engine.process order by kind')).toEqual([
    { kind: 'scheduler', name: 'west 1' },
    { kind: 'worker', name: 'west 1' },
  ]);
  child.signal('SIGTERM');
  expect(await child.exit).toBe(0);
  const long = await runCli(['config'], { cwd, env: { ...env, PGFRESH_WORKER_NAME: 'x'.repeat(201) } });
  expect(long.stderr).toContain('PGFRESH_WORKER_NAME: workerName: expected 1 to 200 characters');
});
