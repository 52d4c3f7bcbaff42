import { resolve } from 'node:path';
import { expect, test } from 'vitest';
import { Viewers } from '../../../examples/market/viewers.ts';
import { CliProcess, runCli } from '../../harness/process.ts';
import { apiKey, openMarket, ProviderScene } from './scene.ts';

test('planner and worker keep fresh what the viewers look at, and the provider and the ledger agree', async () => {
  const scene = await ProviderScene.open({ now: Date.now, uptime: () => performance.now(), limit: 300 });
  const { url, db } = await openMarket();
  const cli = {
    cwd: '/',
    env: { DATABASE_URL: url, MARKET_URL: scene.url, MARKET_API_KEY: apiKey },
  };
  const config = ['--config', resolve('examples/market/pgfresh.config.ts')];
  expect(await runCli(['migrate', ...config], cli)).toMatchObject({ code: 0 });
  const run = new CliProcess(['run', '--roles', 'planner,worker', '--port', '0', ...config], cli);
  // As many as 56 calls are enough for: what comes after those waits for the next ten seconds.
  const viewers = new Viewers({ url, seed: 1, count: 12, medianDwellMs: 4_000 });
  viewers.start();
  try {
    const rows = async () => {
      const [row] = await db.query<{ count: number }>(
        `select least((select count(*) from quotes), (select count(*) from financial_statements), (select count(*) from ratios_ttm))::int as count`,
      );
      return row!.count;
    };
    await expect.poll(rows, { timeout: 25_000 }).toBeGreaterThanOrEqual(3);
  } finally {
    await viewers.stop();
    run.signal('SIGTERM');
    expect(await run.exit).toBe(0);
  }
  const { calls, bytes, keys } = await scene.report();
  expect(keys[apiKey]!.busiestMinute).toBe(calls);
  const [ledger] = await db.query(
    'select sum(calls)::int as calls, sum(data_size_bytes)::int as bytes from pgfresh.api_data_usage',
  );
  expect(ledger).toEqual({ calls, bytes });
});
