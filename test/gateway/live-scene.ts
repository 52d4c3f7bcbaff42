import { SignJWT } from 'jose';
import { afterEach } from 'vitest';
import { resolveConfig, type Config, type GatewayDefinition } from '../../src/config/index.ts';
import type { Database } from '../../src/database/index.ts';
import { Events, type PgfreshEvent } from '../../src/events/index.ts';
import { Gateway } from '../../src/gateway/index.ts';
import { HttpServer, type HttpOptions } from '../../src/http/index.ts';
import { Health, Metrics } from '../../src/watch/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { standInWorker } from '../harness/stand-in-worker.ts';
import { LiveClient, type LiveOptions } from './live-client.ts';

export const secret = 'a secret of tests, long enough for HS256';
process.env['TEST_JWT_SECRET'] = secret;

// Gateways stop with their test, so that the next one starts without viewers.
const started = new Set<RunningGateway>();
afterEach(async () => {
  await Promise.all([...started].map((running) => running.stop()));
});

/** A token that the tests' gateways accept, unless the options make it invalid. */
export function tokenOf(
  user: string,
  { expires = '1h', by = secret, claims = {} }: { expires?: string | Date; by?: string; claims?: object } = {},
): Promise<string> {
  return new SignJWT({ ...claims })
    .setProtectedHeader({ alg: 'HS256' })
    .setSubject(user)
    .setExpirationTime(expires)
    .sign(new TextEncoder().encode(by));
}

/** A database with a data type "quote", whose keys are upper-case words with an optional .X, and gateways on it. */
export class LiveScene {
  readonly url: string;
  readonly db: Database;

  private constructor(url: string, db: Database) {
    this.url = url;
    this.db = db;
  }

  /** Uses a new database, or the given one, which is migrated already. */
  static async open(given?: string): Promise<LiveScene> {
    const url = given ?? (await createDatabase());
    const db = openDatabase(url);
    await db.query(`
      create table quote (key text primary key, price numeric, fetched_at timestamptz);
      grant select on quote to pgfresh_evaluator;
      insert into pgfresh.sources (name) values ('market');
      insert into pgfresh.data_type_registry (data_type, source, table_name, timestamp_column, ttl, key_pattern, normalise)
        values ('quote', 'market', 'quote', 'fetched_at', '1 minute', '^[A-Z]+([.]X)?$', 'upper')`);
    await standInWorker(db);
    return new LiveScene(url, db);
  }

  /** Starts a gateway with an HTTP server. It accepts the tokens of `tokenOf`, unless configured otherwise. */
  async gateway(
    gateway: GatewayDefinition = {},
    config: Config = {},
    routes?: HttpOptions['routes'],
  ): Promise<RunningGateway> {
    return RunningGateway.start(this, gateway, config, routes);
  }

  async quote(key: string, price: number, age = '0'): Promise<void> {
    await this.db.query(
      `insert into quote values ($1::text, $2::numeric, pgfresh.clock() - $3::interval)
       on conflict (key) do update set price = excluded.price, fetched_at = excluded.fetched_at`,
      [key, price, age],
    );
  }

  async value<T>(expression: string, values: readonly unknown[] = []): Promise<T> {
    const [row] = await this.db.query<{ value: T }>(`select (${expression}) as value`, values);
    return row!.value;
  }

  /** The viewers of each pair, as "quote AAPL 2". */
  demand(): Promise<string[]> {
    return this.value(
      `array(select concat_ws(' ', r.data_type, d.key, sum(d.viewers)) from pgfresh_engine.node_demand as d join pgfresh.data_type_registry as r using (type_id) group by r.data_type, d.key order by 1)`,
    );
  }

  queued(): Promise<string[]> {
    return this.value(`array(select data_type || ' ' || key from pgfresh_engine.open_jobs order by 1)`);
  }

  /** Deletes what earlier tests left behind. */
  async clear(): Promise<void> {
    await this.db.query(
      `delete from quote; delete from pgfresh_engine.process where kind = 'gateway'; delete from pgfresh_engine.job; delete from pgfresh_engine.due; delete from pgfresh_engine.pairs`,
    );
  }
}

/** The database of a gateway. */
type Place = Pick<LiveScene, 'db' | 'url'>;

export class RunningGateway {
  readonly events = new Events();
  readonly seen: PgfreshEvent[] = [];
  readonly http: HttpServer;
  readonly gateway: Gateway;

  private constructor(scene: Place, gateway: GatewayDefinition, config: Config, routes: HttpOptions['routes']) {
    const jwt = { secret: { env: 'TEST_JWT_SECRET' } };
    const resolved = resolveConfig({
      config: { port: 0, token: 'the-token-of-the-console', ...config, gateway: { jwt, ...gateway } },
    });
    this.events.subscribe((event) => this.seen.push(event));
    const { db, url } = scene;
    this.gateway = new Gateway({ db, url, listenUrl: url, events: this.events, settings: resolved.gateway });
    this.http = new HttpServer({
      settings: resolved.settings,
      events: this.events,
      health: new Health(),
      metrics: new Metrics(this.events),
      mounts: [this.gateway.mount],
      ...(routes && { routes }),
    });
  }

  static async start(
    scene: Place,
    gateway: GatewayDefinition,
    config: Config = {},
    routes?: HttpOptions['routes'],
  ): Promise<RunningGateway> {
    const running = new RunningGateway(scene, gateway, config, routes);
    started.add(running);
    await running.gateway.start();
    await running.http.start();
    return running;
  }

  async stop(): Promise<void> {
    started.delete(this);
    await this.http.stop();
    await this.gateway.stop();
  }

  /** The codes of all refusals. */
  get refusals(): string[] {
    return this.seen.flatMap((event) => (event.type === 'gateway.refused' ? [event.code] : []));
  }

  /** Connects as a user, or anonymously. */
  async connect(user: string | undefined, options: LiveOptions = {}): Promise<LiveClient> {
    const token = user === undefined ? {} : { authorization: `Bearer ${await tokenOf(user)}` };
    return LiveClient.open(this.http.url, { ...options, headers: { ...token, ...options.headers } });
  }

  /** Connects and says hello. */
  async greet(user: string | undefined, options: LiveOptions = {}): Promise<LiveClient> {
    const client = await this.connect(user, options);
    client.say({ type: 'hello', protocol: 1 });
    await client.next('welcome');
    return client;
  }
}
