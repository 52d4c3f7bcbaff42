import { z } from 'zod';
import { resolveConfig, type DataType, type ResolvedConfig } from '../../src/config/index.ts';
import type { Database } from '../../src/database/index.ts';
import { Events, type PgfreshEvent } from '../../src/events/index.ts';
import { defineDataType, defineSource, type DataTypeDefinition, type Duration } from '../../src/index.ts';
import { Queue, type ClaimedJob } from '../../src/queue/index.ts';
import { Commits, readCatalog, Refresher, type EndedJob, type RefreshType } from '../../src/refresh/index.ts';
import { syncRegistry } from '../../src/registry/index.ts';
import { SourceClient } from '../../src/sources/index.ts';
import { atEnd, createDatabase, openDatabase } from '../harness/database.ts';
import { Provider } from '../harness/provider.ts';

export const quoteSchema = z.object({
  symbol: z.string(),
  price: z.number(),
  name: z.string().nullable().optional(),
  at: z.string(),
});

/** A quote with a source timestamp, fetched from the provider. */
export function quoteType(changes: Partial<DataTypeDefinition> = {}): DataTypeDefinition {
  const quote = defineDataType({
    name: 'quote',
    source: 'market',
    table: 'quote',
    key: 'symbol',
    timestamp: 'fetched_at',
    ttl: '1m',
    normalise: 'upper',
    sourceTimestamp: 'quoted_at',
    schema: quoteSchema,
    request: (key) => ({ url: `/quote/${key}` }),
    rows: ({ symbol, price, at, name }) => ({ symbol, price, quoted_at: at, name }),
    sanity: { price: { above: 0, max: 1e6 } },
  });
  return { ...quote, ...changes };
}

const tables = `
  create table public.quote (symbol text primary key, price numeric not null check (price <> 13), name text default 'nobody', quoted_at timestamptz, fetched_at timestamptz);
  create table public.plain (symbol text primary key, price numeric, fetched_at timestamptz);
  create table public.statement (symbol text, exchange text, period date, revenue numeric, quoted_at timestamptz, fetched_at timestamptz, primary key (symbol, exchange, period));
  create table public.child (symbol text primary key references public.quote (symbol) deferrable initially deferred, price numeric, fetched_at timestamptz);`;

/** A provider, a database with tables of a user, and short words for a refresh from its job to its end. */
export class RefreshScene {
  readonly url: string;
  readonly db: Database;
  readonly provider: Provider;
  readonly events = new Events();
  readonly seen: PgfreshEvent[] = [];
  readonly config: ResolvedConfig;
  readonly queue = new Queue();
  readonly #clients = new Map<string, SourceClient>();
  #worker = 0;

  private constructor(url: string, db: Database, provider: Provider, config: ResolvedConfig) {
    this.url = url;
    this.db = db;
    this.provider = provider;
    this.config = config;
    this.events.subscribe((event) => this.seen.push(event));
  }

  static async open(
    dataTypes: readonly DataTypeDefinition[] = [quoteType()],
    sources: readonly string[] = [],
    timeout: Duration = '10s',
    server?: string,
    more: readonly string[] = [],
  ): Promise<RefreshScene> {
    const provider = await Provider.start();
    const url = server ?? (await createDatabase());
    const db = openDatabase(url);
    for (const statement of [tables, ...more]) await db.query(statement);
    const config = resolveConfig({
      config: {
        sources: ['market', ...sources].map((name) => marketSource(provider, name, timeout)),
        dataTypes,
      },
    });
    const scene = new RefreshScene(url, db, provider, config);
    await syncRegistry(db, config, scene.events);
    const [row] = await db.query<{ id: number }>(`select pgfresh_engine.register_process('worker', 'test') as id`);
    scene.#worker = row!.id;
    await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
    return scene;
  }

  get dataTypes(): readonly DataType[] {
    return this.config.dataTypes!;
  }

  async type(name = 'quote'): Promise<RefreshType> {
    const { types, problems } = await readCatalog(this.db, { sources: this.config.sources, dataTypes: this.dataTypes });
    const type = [...types.values()].find((one) => one.name === name);
    if (!type) throw new Error(JSON.stringify(problems));
    return type;
  }

  client(source: string): SourceClient {
    const known = this.#clients.get(source);
    if (known) return known;
    const client = new SourceClient(
      this.config.sources.find(({ name }) => name === source)!,
      { events: this.events },
    );
    this.#clients.set(source, client);
    atEnd(() => client.close());
    return client;
  }

  refresher(): Refresher {
    return new Refresher({ clientOf: ({ source }) => this.client(source), now: () => new Date() });
  }

  async enqueue(type: string, keys: readonly string[], metadata?: object): Promise<void> {
    await this.queue.enqueueMany(this.db, type, keys, metadata ? { metadata } : {});
  }

  async claim(...types: number[]): Promise<ClaimedJob[]> {
    // What earlier answers say about a data type and an API key has tests of its own.
    await this.db.query(`delete from pgfresh_engine.breaker`);
    await this.db.query(
      `update pgfresh.sources set denied_keys = '{}', breaker_opened_at = null, paused_until = null, paused_by = null where paused_by = 'credentials'`,
    );
    const filter = types.length > 0 ? { types } : {};
    const { jobs } = await new Queue().claim(this.db, { worker: this.#worker, limit: 100, ...filter });
    return jobs.toSorted((a, b) => (a.key < b.key ? -1 : 1));
  }

  /** Refreshes keys of a type: enqueued, claimed, fetched, and ended in one commit. */
  async refresh(keys: readonly string[], name = 'quote', db = this.db): Promise<EndedJob[]> {
    const type = await this.type(name);
    await this.enqueue(name, keys);
    const jobs = await this.claim(type.id);
    const refresher = this.refresher();
    const { signal } = new AbortController();
    const ready = await Promise.all(
      jobs.map(async (job) => ({ job, fetched: await refresher.fetch(type, job, signal) })),
    );
    const { ended } = await new Commits(db, this.queue).end(type, ready, signal);
    return ended.toSorted((a, b) => (a.job.key < b.job.key ? -1 : 1));
  }

  /** The outcome of one key. */
  async outcome(key: string, name = 'quote'): Promise<string> {
    const [ended] = await this.refresh([key], name);
    return ended!.outcome;
  }

  /** A quote as the provider tells it. */
  quote(symbol: string, price: number, at = '2026-01-05T12:00:00Z', more: object = {}): void {
    this.provider.json(`/quote/${symbol}`, { symbol, price, at, ...more });
  }

  rows<Row extends object = Record<string, unknown>>(
    table = 'quote',
    columns = 'symbol, price::float8 as price',
  ): Promise<Row[]> {
    return this.db.query<Row>(`select ${columns} from public.${table} order by 1, 2`);
  }

  async value<T>(expression: string, values: readonly unknown[] = []): Promise<T> {
    const [row] = await this.db.query<{ value: T }>(`select (${expression}) as value`, values);
    return row!.value;
  }
}

function marketSource(provider: Provider, name: string, timeout: Duration) {
  return defineSource({ name, baseUrl: provider.url, allowPrivateAddresses: true, cacheEntries: 0, timeout });
}
