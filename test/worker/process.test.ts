import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { syncRegistry } from '../../src/registry/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { Provider } from '../harness/provider.ts';
import { killConfig, killTables } from './kill-types.ts';
import { until } from './scene.ts';

const script = fileURLToPath(new URL('./worker-process.ts', import.meta.url));
const running = new Set<ReturnType<typeof startProcess>>();

let url = '';
let db: Database;
let provider: Provider;

beforeAll(async () => {
  provider = await Provider.start();
  url = await createDatabase();
  db = openDatabase(url);
  await db.query(killTables);
  await syncRegistry(db, killConfig(provider.url), new Events());
});
afterEach(async () => {
  for (const child of running) {
    child.kill('SIGKILL');
    await child.exit;
  }
});

/** A worker process whose threads run some code of the test before their own. */
function startProcess(code: string) {
  const preload = `data:text/javascript,${encodeURIComponent(code)}`;
  const child = spawn(process.execPath, ['--import', preload, script, url, provider.url]);
  let stderr = '';
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  const started = {
    kill: (signal: NodeJS.Signals) => child.kill(signal),
    stderr: () => stderr,
    exit: once(child, 'close').then(([exitCode]) => {
      running.delete(started);
      return exitCode as number | null;
    }),
  };
  running.add(started);
  return started;
}

describe('a worker whose lease thread', () => {
  it('ends before it is registered does not start, and says so', async () => {
    const child = startProcess(`
      import { isMainThread } from 'node:worker_threads';
      if (!isMainThread) process.exit(7);`);
    expect(await child.exit).toBe(1);
    expect(child.stderr()).toContain('the lease thread exited with 7 before it registered');
  });

  it('fails in the middle goes on under another lease', async () => {
    provider.json('/v1/quote/AAPL', { symbol: 'AAPL', price: 1 });
    // The first thing that a thread is told after its registration is a claim.
    const child = startProcess(`
      import { parentPort, threadId } from 'node:worker_threads';
      if (threadId === 1) parentPort.on('message', () => { throw new Error('no more'); });`);
    await db.query(`select count(*) from pgfresh_engine.queue_refreshes('item', '{AAPL}')`);
    const lease = () =>
      db.query<{ id: number }>(
        `select id from pgfresh_engine.process where kind = 'worker' and lease_until > pgfresh.clock()`,
      );
    await until(async () => (await lease()).length > 1);
    await until(async () => (await db.query('select from item')).length === 1);
    child.kill('SIGTERM');
    expect([await child.exit, child.stderr()]).toEqual([0, '']);
  });
});
