import { listings } from '../../examples/market/provider/listings.ts';
import { Provider } from '../../examples/market/provider/provider.ts';
import { Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { syncRegistry } from '../../src/registry/index.ts';
import { Worker } from '../../src/worker/index.ts';
import { Proxy } from '../harness/proxy.ts';
import { seededRandom } from '../harness/random.ts';
import { apiKey, killConfig, killTables, refused } from '../worker/kill-types.ts';
import type { Campaign } from './campaign.ts';

const symbols = [...listings.keys()].filter((symbol) => !refused.some((one) => one === symbol));

/**
 * A worker whose connections are cut when it has sent COMMIT, on its way there or on the way back. Every job ends once,
 * every row is written once, the provider is asked once, and the ledger has what it has counted.
 */
export const commits: Campaign = {
  about: 'connections that are cut right after COMMIT was sent',
  steps: 500,
  testSteps: 20,
  mustMeet: ['arrived', 'never arrived'],
  async run({ url, seed, steps, progress }) {
    const random = seededRandom(seed);
    const tally = { arrived: 0, 'never arrived': 0 };
    const provider = new Provider({ port: 0, seed, keys: [apiKey], limit: undefined, latencyMs: 0 });
    const { sources, dataTypes = [] } = killConfig(await provider.start());
    const { proxy, url: farUrl } = await Proxy.before(url);
    const near = new Database({ url, events: new Events(), applicationName: 'pgfresh campaign' });
    const events = new Events();
    const far = new Database({ url: farUrl, events, applicationName: 'pgfresh campaign' });
    const worker = new Worker({
      db: far,
      url,
      listenUrl: url,
      events,
      sources,
      dataTypes,
      concurrency: 100,
      drainMs: 5_000,
    });
    try {
      await near.query(killTables);
      await syncRegistry(near, { sources, dataTypes }, events);
      await worker.start();
      for (let step = 0; step < steps; step++) {
        const fate = random() < 0.5 ? 'arrived' : 'never arrived';
        const ended = new Promise<void>((resolve) => {
          const unsubscribe = events.on('refresh.ended', () => (unsubscribe(), resolve()));
        });
        cutAtCommit(proxy, fate === 'arrived', () => tally[fate]++);
        await near.query(`select count(*) from pgfresh_engine.queue_refreshes('item', array[$1::text])`, [
          symbols[step % symbols.length],
        ]);
        // The worker has to come to know it, too.
        await ended;
        if (tally.arrived + tally['never arrived'] !== step + 1) throw new Error(`step ${step}: nothing was cut`);
        if (step % 50 === 0) progress(step);
      }
      await worker.stop();
      const [ledger] = await near.query<{ bytes: number; calls: number }>(
        'select sum(bytes)::int as bytes, sum(calls)::int as calls from pgfresh_engine.usage',
      );
      const { bytes, calls } = provider.meter.report();
      const found = {
        ended: await count(near, `pgfresh_engine.history_succeeded where outcome = 'fresh' and retries = 0`),
        others: (await count(near, 'pgfresh_engine.history_other')) + (await count(near, 'pgfresh_engine.job')),
        written: await count(near, 'audit'),
        bytes: ledger!.bytes,
        calls: ledger!.calls,
        asked: calls,
      };
      const expected = { ended: steps, others: 0, written: steps, bytes, calls: steps, asked: steps };
      if (JSON.stringify(found) !== JSON.stringify(expected))
        throw new Error(`expected ${JSON.stringify(expected)}, got ${JSON.stringify(found)}`);
    } finally {
      await worker.stop();
      await far.close();
      await near.close();
      await proxy.close();
      await provider.stop();
    }
    return tally;
  },
};

/** Cuts every connection once, when a COMMIT comes by or when its answer does. */
function cutAtCommit(proxy: Proxy, arrives: boolean, onCut: () => void): void {
  let isSent = false;
  proxy.judge = (chunk, direction) => {
    const isCommit = direction === 'to server' && chunk.includes('commit\0');
    if (isCommit) isSent = true;
    if (!isSent || (arrives && direction === 'to server')) return 'pass';
    proxy.judge = () => 'pass';
    onCut();
    return 'cut';
  };
}

async function count(db: Database, from: string): Promise<number> {
  const [row] = await db.query<{ count: number }>(`select count(*)::int as count from ${from}`);
  return row!.count;
}
