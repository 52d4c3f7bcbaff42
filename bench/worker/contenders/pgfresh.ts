import { resolveConfig, type ResolvedConfig } from '../../../src/config/index.ts';
import { Database, migrate, readSqlFiles } from '../../../src/database/index.ts';
import { Events } from '../../../src/events/index.ts';
import { defineDataType, defineSource } from '../../../src/index.ts';
import { Queue } from '../../../src/queue/index.ts';
import { syncRegistry } from '../../../src/registry/index.ts';
import { Worker } from '../../../src/worker/index.ts';
import type { Contender, Place } from '../contender.ts';
import { pathOf, quoteSchema, rowOf } from '../mirror.ts';

// The default. With 250, so much is under way at once that collecting garbage takes 10 µs more for each job.
const concurrency = 100;

export const typeName = 'quote';

export const pgfresh: Contender = {
  name: 'pgfresh',
  system: 'pgfresh',
  settings: `the defaults: ${concurrency} answers at once, pool of 10, claims and commits as large as they come`,

  async setup(place) {
    const database = open(place.url);
    const events = new Events();
    await migrate(database, { files: await readSqlFiles(), events });
    await syncRegistry(database, configFor(place), events);
    await database.close();
  },

  async load(url, keys) {
    const database = open(url);
    const queue = new Queue();
    for (let from = 0; from < keys.length; from += 10_000) {
      await queue.enqueueMany(database, typeName, keys.slice(from, from + 10_000), { priority: 1 });
    }
    await database.close();
  },

  async worker(place, onEnd) {
    const events = new Events();
    const { sources, dataTypes = [] } = configFor(place);
    const db = open(place.url);
    const sums = { fetch: 0, validate: 0, commit: 0 };
    let jobs = 0;
    const told = new Set<string>();
    events.on('refresh.ended', ({ ok, outcome, error, fetchMs, validateMs, commitMs }) => {
      if (!ok) {
        if (!told.has(outcome)) process.stderr.write(`pgfresh: ${outcome}: ${error}\n`);
        told.add(outcome);
        return;
      }
      sums.fetch += fetchMs;
      sums.validate += validateMs;
      sums.commit += commitMs;
      jobs++;
      onEnd(1);
    });
    events.subscribe((event) => {
      const isTold = event.type === 'warning' || event.type === 'worker.failed' || event.type === 'worker.lease_lost';
      if (isTold) process.stderr.write(`pgfresh: ${JSON.stringify(event)}\n`);
    });
    const { url } = place;
    const worker = new Worker({ db, url, listenUrl: url, events, sources, dataTypes, concurrency, drainMs: 5000 });
    return {
      start: () => worker.start(),
      steps: () => Object.fromEntries(Object.entries(sums).map(([step, ms]) => [step, ms / jobs])),
    };
  },

  async hasOpenJobs(client) {
    return (await client.query('select 1 from pgfresh_engine.job limit 1')).rows.length > 0;
  },
};

function configFor({ provider, limit }: Place): ResolvedConfig {
  const market = defineSource({
    name: 'market',
    baseUrl: provider,
    allowPrivateAddresses: true,
    rateLimitPerMinute: limit,
    headers: { 'x-api-key': 'demo-1' },
    // Peers have no cache, and an answer from it is no call.
    cacheEntries: 0,
  });
  const quote = defineDataType({
    name: typeName,
    source: market,
    table: 'quote',
    key: 'symbol',
    timestamp: 'fetched_at',
    ttl: '1h',
    sourceTimestamp: 'quoted_at',
    schema: quoteSchema,
    request: (symbol) => ({ url: pathOf(symbol) }),
    rows: rowOf,
  });
  return resolveConfig({ config: { sources: [market], dataTypes: [quote] } });
}

function open(url: string): Database {
  return new Database({ url, events: new Events(), applicationName: 'pgfresh bench' });
}
