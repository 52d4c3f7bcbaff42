import { describe, expect, test } from 'vitest';
import { faultOf, faults, type FaultKind } from '../../../examples/market/provider/faults/index.ts';
import { listings } from '../../../examples/market/provider/listings.ts';
import { Events } from '../../../src/events/index.ts';
import { Queue } from '../../../src/queue/index.ts';
import { Commits, readCatalog, Refresher, type EndedJob } from '../../../src/refresh/index.ts';
import { SourceClient } from '../../../src/sources/index.ts';
import { atEnd } from '../../harness/database.ts';
import { openTypes, routeOf, type OpenType } from './open-types.ts';
import { registerMarket } from './registered-market.ts';
import { apiKey, openMarket, ProviderScene } from './scene.ts';

const kinds = Object.keys(faults) as FaultKind[];
const day = 86_400_000;

const scene = await ProviderScene.open();
const { db } = await openMarket();
const config = await registerMarket(db, {
  baseUrl: scene.url,
  rateLimitPerMinute: undefined,
  quotaBytes: undefined,
  // The whole way each time, and what is slow is soon given up.
  cacheEntries: 0,
  timeout: '400ms',
});
const client = new SourceClient(config.sources[0]!, { events: new Events(), env: { MARKET_API_KEY: apiKey } });
atEnd(() => client.close());
const { types } = await readCatalog(db, { sources: config.sources, dataTypes: config.dataTypes! });
const queue = new Queue();
const refresher = new Refresher({ clientOf: () => client, now: () => new Date() });
const [worker] = await db.query<{ id: number }>(`select pgfresh.register_worker('test') as id`);
await db.query(`update pgfresh.worker set lease_until = 'infinity'`);

/** Refreshes one pair, from its job to its end. */
async function refresh(type: OpenType, key: string): Promise<EndedJob> {
  const refreshed = [...types.values()].find(({ name }) => name === type.name)!;
  const { signal } = new AbortController();
  await queue.enqueueMany(db, type.name, [key]);
  const { jobs } = await new Queue().claim(db, { worker: worker!.id, limit: 1, types: [refreshed.id] });
  expect(jobs.map((job) => job.key)).toEqual([key]);
  const ready = await Promise.all(
    jobs.map(async (job) => ({ job, fetched: await refresher.fetch(refreshed, job, signal) })),
  );
  const [ended] = await new Commits(db, queue).end(refreshed, ready, signal);
  // A failure may be tried again, and may pause the source; both would be in the way of the next one.
  await db.query('select pgfresh.cancel_queue_jobs(p_data_type => $1::text)', [type.name]);
  await db.query(`select pgfresh.resume_source('market')`);
  return ended!;
}

const rowsOf = ({ table }: OpenType, symbol: string) =>
  db.query(`select to_jsonb(t) as row from ${table} as t where symbol = $1::text order by 1`, [symbol]);

describe('whatever the provider says, the engine comes to what the table declares', async () => {
  const [, , , , dividends] = openTypes;
  // Symbols of companies that pay, one a fault: there is a list to spoil.
  const symbols: string[] = [];
  for (const symbol of listings.keys()) {
    const answer = await scene.json(dividends.request(symbol).url);
    if ((answer['dividends'] as unknown[]).length > 0) symbols.push(symbol);
    if (symbols.length === kinds.length) break;
  }

  test.each(kinds.map((kind, place) => [kind, symbols[place]!] as const))('%s (%s)', async (kind, symbol) => {
    const { outcome, routes } = faultOf(kind);
    const spoilt = openTypes.filter((type) => routes?.some((route) => route === routeOf(type)) ?? true);
    scene.time.now = Date.now() - 120 * day;
    for (const type of openTypes) expect((await refresh(type, symbol)).outcome).toBe('fresh');
    scene.time.now += 120 * day;
    for (const type of spoilt) {
      const before = await rowsOf(type, symbol);
      await scene.admin('POST', '/faults', { kind, symbol, route: routeOf(type) });
      await scene.admin('DELETE', '/meter');
      const ended = await refresh(type, symbol);
      expect([type.name, ended.outcome]).toEqual([type.name, outcome]);
      if (outcome !== 'fresh') expect(await rowsOf(type, symbol)).toEqual(before);
      await scene.admin('DELETE', '/faults');

      const metered = await scene.report();
      expect(ended.cost.calls).toBe(metered.calls);
      // Of an answer that is cut, the provider may have written what nobody read.
      if (!['timeout', 'too_large', 'network'].includes(outcome)) expect(ended.cost.bytes).toBe(metered.bytes);
      if (outcome !== 'fresh') expect((await refresh(type, symbol)).outcome).toBe('fresh');
      expect(await rowsOf(type, symbol)).not.toEqual(before);
    }
  });
});
