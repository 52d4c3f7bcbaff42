import { onTestFinished } from 'vitest';
import type { Database, Queryable } from '../../src/database/index.ts';
import { Events, type PgfreshEvent } from '../../src/events/index.ts';
import { Changes, type PairState, type Watcher } from '../../src/changes/index.ts';
import { admitPairs } from '../../src/gateway/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';

/** Somebody who looks at a pair, with everything that he was told. */
export class Viewer implements Watcher {
  readonly states: PairState[] = [];
  isGone = false;
  isHeld = false;
  #told = Promise.withResolvers<void>();
  stop: () => void = () => {};

  readonly onState = (state: PairState): void => {
    this.states.push(state);
    this.#tell();
  };

  readonly onHeld = (): void => {
    this.isHeld = true;
    this.#tell();
  };

  readonly onGone = (): void => {
    this.isGone = true;
    this.#tell();
  };

  get state(): PairState | undefined {
    return this.states.at(-1);
  }

  get rows(): Record<string, unknown>[] {
    return JSON.parse(this.state?.rows ?? '[]') as Record<string, unknown>[];
  }

  /** Settles when he has been told what he waits for. */
  async until(isTold: (viewer: Viewer) => boolean): Promise<this> {
    while (!isTold(this)) await this.#told.promise;
    return this;
  }

  #tell(): void {
    this.#told.resolve();
    this.#told = Promise.withResolvers();
  }
}

/** A database with a table "quote" and its data type, and gateways on it. */
export class GatewayScene {
  readonly url: string;
  readonly db: Database;

  private constructor(url: string, db: Database) {
    this.url = url;
    this.db = db;
  }

  /** On a database of its own, or on one that is migrated already. */
  static async open(given?: string): Promise<GatewayScene> {
    const url = given ?? (await createDatabase());
    const scene = new GatewayScene(url, openDatabase(url));
    await scene.db.query(`insert into pgfresh.sources (name) values ('market')`);
    await scene.type('quote');
    return scene;
  }

  /** A data type with a table of its own: symbol, price, fetched_at. */
  async type(name: string, columns: Readonly<Record<string, string>> = {}): Promise<void> {
    await this.db.query(`create table public.${name} (symbol text primary key, price numeric, fetched_at timestamptz)`);
    const all = {
      data_type: name,
      source: 'market',
      table_name: name,
      key_columns: '{symbol}',
      timestamp_column: 'fetched_at',
      ttl: '1 minute',
      ...columns,
    };
    const names = Object.keys(all);
    await this.db.query(
      `insert into pgfresh.data_type_registry (${names.join(', ')}) values (${names.map((_, n) => `$${n + 1}`).join(', ')})`,
      Object.values(all),
    );
  }

  async gateway(options: { listenUrl?: string | undefined; db?: Queryable } = {}) {
    const events = new Events();
    const seen: PgfreshEvent[] = [];
    events.subscribe((event) => seen.push(event));
    const gateway = new Changes({ db: this.db, listenUrl: this.url, events, ...options });
    onTestFinished(() => gateway.stop());
    await gateway.start();
    return { gateway, events, seen, look: (key: string, type = 'quote') => this.look(gateway, key, type) };
  }

  async look(gateway: Changes, key: string, dataType = 'quote'): Promise<Viewer> {
    const [answer] = await admitPairs(this.db, [{ dataType, key }]);
    if (!answer || 'refused' in answer) throw new Error(answer?.refused.problem);
    const viewer = new Viewer();
    viewer.stop = gateway.mirror.watch(answer.admitted, viewer);
    return viewer;
  }

  async price(key: string, price: number, table = 'quote'): Promise<void> {
    await this.db.query(
      `insert into public.${table} values ($1::text, $2::numeric, pgfresh.clock()) on conflict (symbol) do update set price = excluded.price`,
      [key, price],
    );
  }

  async value<T>(expression: string, values: readonly unknown[] = []): Promise<T> {
    const [row] = await this.db.query<{ value: T }>(`select (${expression}) as value`, values);
    return row!.value;
  }
}

/** Whether a viewer has seen a price. */
export const sees =
  (price: number | undefined) =>
  ({ state, rows }: Viewer): boolean =>
    state !== undefined && rows[0]?.['price'] === price;
