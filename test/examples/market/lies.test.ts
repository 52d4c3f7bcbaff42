import { describe, expect, test } from 'vitest';
import { faultOf, faults, type FaultKind } from '../../../examples/market/provider/faults/index.ts';
import { listings } from '../../../examples/market/provider/listings.ts';
import { Events, type EventOf } from '../../../src/events/index.ts';
import { Queue } from '../../../src/queue/index.ts';
import { Worker } from '../../../src/worker/index.ts';
import { atEnd } from '../../harness/database.ts';
import { openTypes, routeOf, type OpenType } from './open-types.ts';
import { registerMarket } from './registered-market.ts';
import { apiKey, openMarket, ProviderScene } from './scene.ts';

const kinds = Object.keys(faults) as FaultKind[];
const day = 86_400_000;
const [profile, quote, statements, ratios, dividends] = openTypes;
// While some types are lied about, the others are not.
const halves = [
  [quote, statements],
  [profile, ratios, dividends],
];

const scene = await ProviderScene.open();
const { db, url } = await openMarket();
const config = await registerMarket(db, {
  baseUrl: scene.url,
  rateLimitPerMinute: undefined,
  quotaBytes: undefined,
  // The whole way each time, and what is slow is soon given up.
  cacheEntries: 0,
  timeout: '1200ms',
});
process.env['MARKET_API_KEY'] = apiKey;
const events = new Events();
const worker = new Worker({
  db,
  url,
  listenUrl: url,
  events,
  sources: config.sources,
  dataTypes: config.dataTypes!,
  concurrency: 100,
  drainMs: 5_000,
});
atEnd(() => worker.stop());
await worker.start();
const queue = new Queue();

type Ended = EventOf<'refresh.ended'>;

/** Enqueues one key of types for the worker, in one moment, and tells what it made of each, and what that cost in all. */
async function refresh(types: readonly OpenType[], key: string): Promise<Map<OpenType, Ended>> {
  const all = Promise.withResolvers<void>();
  const ended = new Map<OpenType, Ended>();
  const unsubscribe = events.on('refresh.ended', (event) => {
    const type = types.find(({ name }) => name === event.dataType);
    if (event.key !== key || !type) return;
    const first = ended.get(type);
    // What was tried again at once has ended before, and cost more.
    if (!first) ended.set(type, event);
    else ended.set(type, { ...first, calls: first.calls + event.calls, bytes: first.bytes + event.bytes });
    if (ended.size === types.length) all.resolve();
  });
  await db.transact('enqueue', async (tx) => {
    for (const { name } of types) await queue.enqueueMany(tx, name, [key]);
  });
  await all.promise;
  // A failure may be tried again, and may pause the source; both would be in the way of the next one.
  await db.query(`select pgfresh.pause_source('market')`);
  const running = `select count(*)::int as count from pgfresh_engine.job where state = 'x'`;
  while ((await db.query<{ count: number }>(running))[0]!.count > 0);
  for (const { name } of types) await db.query('select pgfresh.cancel_queue_jobs(p_data_type => $1::text)', [name]);
  await db.query(`select pgfresh.resume_source('market')`);
  unsubscribe();
  return ended;
}

const outcomesOf = (ended: ReadonlyMap<OpenType, Ended>) =>
  Object.fromEntries([...ended].map(([{ name }, { outcome }]) => [name, outcome]));
const each = (types: readonly OpenType[], outcome: string) =>
  Object.fromEntries(types.map(({ name }) => [name, outcome]));
const rowsOf = ({ table }: OpenType, symbol: string) =>
  db.query(`select to_jsonb(t) as row from ${table} as t where symbol = $1::text order by 1`, [symbol]);

describe('whatever the provider says, a worker comes to what the table declares', async () => {
  // Symbols of companies that pay, one a fault: there is a list to spoil.
  const symbols: string[] = [];
  for (const symbol of listings.keys()) {
    const answer = await scene.json(dividends.request(symbol).url);
    if ((answer['dividends'] as unknown[]).length > 0) symbols.push(symbol);
    if (symbols.length === kinds.length) break;
  }

  test.each(kinds.map((kind, place) => [kind, symbols[place]!] as const))('%s (%s)', async (kind, symbol) => {
    const { outcome, routes } = faultOf(kind);
    for (const half of halves) {
      for (const { table } of openTypes.toReversed())
        await db.query(`delete from ${table} where symbol = $1::text`, [symbol]);
      scene.time.now = Date.now() - 120 * day;
      expect(outcomesOf(await refresh([profile], symbol))).toEqual(each([profile], 'fresh'));
      const children = openTypes.filter((type) => type !== profile);
      expect(outcomesOf(await refresh(children, symbol))).toEqual(each(children, 'fresh'));
      scene.time.now += 120 * day;

      const spoilt = half.filter((type) => routes?.some((route) => route === routeOf(type)) ?? true);
      const others = openTypes.filter((type) => !spoilt.includes(type));
      const before = new Map(
        await Promise.all(openTypes.map(async (type) => [type, await rowsOf(type, symbol)] as const)),
      );
      for (const type of spoilt) await scene.admin('POST', '/faults', { kind, symbol, route: routeOf(type) });
      await scene.admin('DELETE', '/meter');
      const ended = await refresh(openTypes, symbol);
      await scene.admin('DELETE', '/faults');

      expect(outcomesOf(ended)).toEqual({ ...each(spoilt, outcome), ...each(others, 'fresh') });
      for (const type of spoilt) if (outcome !== 'fresh') expect(await rowsOf(type, symbol)).toEqual(before.get(type));
      for (const type of others) expect(await rowsOf(type, symbol)).not.toEqual(before.get(type));
      const metered = (await scene.report()).keys[apiKey]!.routes;
      for (const [type, { calls, bytes }] of ended) {
        const bill = metered[routeOf(type)] ?? { calls: 0, bytes: 0 };
        expect([type.name, calls]).toEqual([type.name, bill.calls]);
        // Of an answer that is cut, the provider may have written what nobody read.
        const isCut = spoilt.includes(type) && ['timeout', 'too_large', 'network'].includes(outcome);
        if (!isCut) expect([type.name, bytes]).toEqual([type.name, bill.bytes]);
      }
      if (spoilt.length === 0) continue;
      if (outcome !== 'fresh') expect(outcomesOf(await refresh(spoilt, symbol))).toEqual(each(spoilt, 'fresh'));
      for (const type of spoilt) expect(await rowsOf(type, symbol)).not.toEqual(before.get(type));
    }
  });
});
