import { symlink, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import type { Database } from '../../src/database/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { CliProcess, runCli } from '../harness/process.ts';
import { Provider } from '../harness/provider.ts';
import { until } from '../worker/scene.ts';

const concurrency = 4;
const provider = await Provider.start();
let cwd = '';
let db: Database;
let env: Record<string, string> = {};

beforeAll(async () => {
  const url = await createDatabase();
  db = openDatabase(url);
  await db.query('create table public.quote (symbol text primary key, price numeric, fetched_at timestamptz)');
  cwd = await temporaryFolder('stopping');
  await symlink(resolve('node_modules'), join(cwd, 'node_modules'));
  await writeFile(
    join(cwd, 'pgfresh.config.ts'),
    `import { createServer } from 'node:net';
    import { defineConfig, defineDataType, defineJob, defineSource } from 'pgfresh';
    import { z } from 'zod';
    const source = defineSource({ name: 'market', baseUrl: '${provider.url}', allowPrivateAddresses: true });
    const quote = defineDataType({
      name: 'quote', source, table: 'quote', key: 'symbol', timestamp: 'fetched_at', ttl: '1h',
      schema: z.object({ symbol: z.string(), price: z.number() }),
      request: (key) => ({ url: '/quote?symbol=' + key }), rows: (answer) => answer,
    });
    const slow = defineJob({
      name: 'slow', schedule: '0 0 1 1 *',
      handler: async () => {
        await fetch('${provider.url}/handler');
        return { success: true, message: 'done' };
      },
    });
    const untidy = defineJob({
      name: 'untidy', schedule: '0 0 1 1 *',
      handler: () => {
        setInterval(() => {}, 10);
        createServer().listen(0, '127.0.0.1');
        process.once('SIGTERM', () => setTimeout(() => { throw new Error('thrown after the end'); }, 8_000));
        return { success: true, message: 'left a lot behind' };
      },
    });
    export default defineConfig({ dataTypes: [quote], jobs: [slow, untidy] });`,
  );
  env = { DATABASE_URL: url, PGFRESH_PORT: '0', PGFRESH_WORKER_CONCURRENCY: String(concurrency) };
  expect(await runCli(['migrate'], { cwd, env })).toMatchObject({ code: 0 });
}, 60_000);

const runs = (job: string): string =>
  `select r.success from pgfresh.scheduled_job_runs as r join pgfresh.scheduled_jobs as j on j.id = r.job_id where j.name = '${job}'`;
const calls = (): number => provider.asked.filter((path) => path === '/quote').length;

it('sound 6: no call begins after SIGTERM, however long a job of the scheduler takes to end', async () => {
  const { promise: stopping, resolve: stopBegun } = Promise.withResolvers<void>();
  provider.answers.set('/quote', (request, response) => {
    const symbol = new URL(request.url!, 'http://x').searchParams.get('symbol');
    const body = JSON.stringify({ symbol, price: 1 });
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
    setTimeout(() => response.writeHead(200, headers).end(body), 20);
  });
  // The handler ends a second after the stop has begun; 50 rounds of calls would fit into that.
  provider.answers.set('/handler', (_request, response) => {
    void stopping.then(() => setTimeout(() => response.end('done'), 1_000));
  });
  const child = new CliProcess(['run', '--json'], { cwd, env });
  await child.printed(/"ready": true/);
  await db.query(`select pgfresh.trigger_scheduled_job('slow')`);
  await until(() => provider.asked.includes('/handler'));
  await db.query(
    `select count(*) from pgfresh_engine.queue_refreshes('quote', array(select 'K' || n from generate_series(1, 1000) as n))`,
  );
  await until(() => calls() >= 20);
  child.signal('SIGTERM');
  await child.printed(/"type":"process\.stopping"/);
  const before = calls();
  stopBegun();
  expect(await child.exit).toBe(0);
  // Requests that were on their way when the stop began.
  expect(calls() - before).toBeLessThanOrEqual(2 * concurrency);
  expect(await db.query(runs('slow'))).toEqual([{ success: true }]);
  // What was claimed and not called is ready for others, and everything that was called is booked.
  expect(await db.query(`select count(*)::int as running from pgfresh_engine.job where state = 'x'`)).toEqual([
    { running: 0 },
  ]);
  expect(await db.query('select sum(calls)::int as booked from pgfresh.api_data_usage')).toEqual([{ booked: calls() }]);
}, 60_000);

it('sound 6: after "stopped" the process exits, whatever a handler has left open', async () => {
  const child = new CliProcess(['run', '--json', '--roles', 'scheduler'], { cwd, env });
  await child.printed(/"ready": true/);
  await db.query(`select pgfresh.trigger_scheduled_job('untidy')`);
  await until(async () => (await db.query<{ success: boolean | null }>(runs('untidy')))[0]?.success === true);
  child.signal('SIGTERM');
  await child.printed(/"type":"process\.stopped"/);
  const since = performance.now();
  expect([await child.exit, child.stderr]).toEqual([0, expect.not.stringContaining('thrown after the end')]);
  expect(performance.now() - since).toBeLessThan(5_000);
}, 60_000);
