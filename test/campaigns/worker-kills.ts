import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { workerFailpoints } from '../../src/lifecycle/index.ts';
import { syncRegistry } from '../../src/registry/index.ts';
import { Worker } from '../../src/worker/index.ts';
import { killConfig, killTables } from '../worker/kill-types.ts';
import type { Campaign } from './campaign.ts';

const child = fileURLToPath(new URL('../worker/worker-process.ts', import.meta.url));
const whileStopping: readonly string[] = ['worker.before-drain', 'worker.before-retire'];

/**
 * A worker process is killed at every failpoint, in turn. Another one takes over: no job is lost, no row is written
 * twice, and the ledger has at least what the provider has sent.
 */
export const workerKills: Campaign = {
  about: 'workers that are killed at every failpoint',
  steps: workerFailpoints.length * 20,
  testSteps: 5,
  mustMeet: ['killed'],
  async run({ url, steps, progress }) {
    const tally: Record<string, number> = {};
    const provider = await startProvider();
    const { sources, dataTypes = [] } = killConfig(provider.url);
    const events = new Events();
    const db = new Database({ url, events, applicationName: 'pgfresh campaign' });
    try {
      await db.query(killTables);
      await syncRegistry(db, { sources, dataTypes }, events);
      for (let step = 0; step < steps; step++) {
        // All of them in turn, and a few of each kind when there are only some.
        const point = workerFailpoints[(step * 11) % workerFailpoints.length]!;
        const good = Array.from({ length: 4 }, (_, n) => `S${step}N${n}`);
        await db.query(`select count(*) from pgfresh.queue_refreshes('item', $1::text[])`, [
          [...good, `S${step}BAD`, `S${step}DOWN`],
        ]);
        await db.query(`select count(*) from pgfresh.queue_refreshes('part', $1::text[])`, [good]);
        await killAt(point, url, provider.url);
        tally['killed'] = (tally['killed'] ?? 0) + 1;
        tally[point] = (tally[point] ?? 0) + 1;
        // What recovery does when the lease has ended, without the wait for its end.
        await db.query(`select pgfresh.take_back(id, 'lost', 'killed') from pgfresh.worker`);
        await db.query('delete from pgfresh.worker');
        const rescuer = new Worker({ db, url, events, sources, dataTypes, concurrency: 100, drainMs: 5_000 });
        await rescuer.start();
        while ((await count(db, 'pgfresh.job')) > 0) await new Promise((resolve) => setTimeout(resolve, 5));
        await rescuer.stop();
        await judge(db, step, point, provider.bytes());
        progress(step);
      }
    } finally {
      await db.close();
      await provider.stop();
    }
    return tally;
  },
};

async function killAt(point: string, url: string, provider: string): Promise<void> {
  const env = { ...process.env, PGFRESH_FAILPOINTS: `${point}=kill`, NODE_OPTIONS: '' };
  const worker = spawn(process.execPath, [child, url, provider], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const exit = once(worker, 'exit');
  worker.stdout.on('data', () => {
    if (whileStopping.includes(point)) worker.kill('SIGTERM');
  });
  const [, signal] = (await exit) as [number | null, string | null];
  if (signal !== 'SIGKILL') throw new Error(`${point} was not reached: the worker ended by ${signal ?? 'itself'}`);
}

async function judge(db: Database, step: number, point: string, sent: number): Promise<void> {
  const [found] = await db.query<{ rows: number; twice: number; ended: number; bytes: number }>(
    `select (select count(*)::int from item where symbol like $1) + (select count(*)::int from part where symbol like $1) as rows,
      (select count(*)::int from audit where symbol like $1) as twice,
      (select count(*)::int from pgfresh.api_call_queue where key like $1) as ended,
      (select coalesce(sum(bytes), 0)::float8 from pgfresh.usage) as bytes`,
    [`S${step}N%`],
  );
  const { rows, twice, ended, bytes } = found!;
  // Four items, and four keys of two parts each, of which the first is counted.
  if (rows !== 12 || twice !== 8 || ended !== 8) throw new Error(`killed at ${point}: ${JSON.stringify(found)}`);
  if (bytes < sent)
    throw new Error(`killed at ${point}: the provider has sent ${sent} bytes, and the ledger has ${bytes}`);
}

async function count(db: Database, table: string): Promise<number> {
  const [row] = await db.query<{ count: number }>(`select count(*)::int as count from ${table}`);
  return row!.count;
}

async function startProvider() {
  let bytes = 0;
  const server: Server = createServer((request, response) => {
    const symbol = request.url!.split('/').at(-1)!;
    const body = JSON.stringify({ symbol, price: symbol.endsWith('BAD') ? 13 : 1 });
    response.on('finish', () => (bytes += body.length));
    const status = symbol.endsWith('DOWN') ? 500 : 200;
    response.writeHead(status, { 'content-type': 'application/json', 'content-length': body.length }).end(body);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const stop = async (): Promise<void> => {
    server.close();
    server.closeAllConnections();
    await once(server, 'close');
  };
  return { url, bytes: () => bytes, stop };
}
