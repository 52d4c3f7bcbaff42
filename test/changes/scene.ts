import { onTestFinished } from 'vitest';
import type { Database, Queryable } from '../../src/database/index.ts';
import { Events, type PgfreshEvent } from '../../src/events/index.ts';
import { Changes, type PairState, type PairWatcher } from '../../src/changes/index.ts';
import { lookUpPairs } from '../../src/gateway/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';

/** A viewer of a pair that records everything it receives. */
export class Viewer implements PairWatcher {
  readonly states: PairState[] = [];
  isGone = false;
  isUnresponsive = false;
  #received = Promise.withResolvers<void>();
  stop: () => void = () => {};

  readonly onState = (state: PairState): void => {
    this.states.push(state);
    this.#notify();
  };

  readonly onUnresponsive = (): void => {
    this.isUnresponsive = true;
    this.#notify();
  };

  readonly onGone = (): void => {
    this.isGone = true;
    this.#notify();
  };

  get state(): PairState | undefined {
    return this.states.at(-1);
  }

  get rows(): Record<string, unknown>[] {
    return JSON.parse(this.state?.rows ?? '[]') as Record<string, unknown>[];
  }

  /** Resolves once the viewer meets the condition. */
  async until(condition: (viewer: Viewer) => boolean): Promise<this> {
    while (!condition(this)) await this.#received.promise;
    return this;
  }

  #notify(): void {
    this.#received.resolve();
    this.#received = Promise.withResolvers();
  }
}

/** A database with a table "quote" and its data type, and gateways' change tracking on it. */
export class ChangesScene {
  readonly url: string;
  readonly db: Database;

  private constructor(url: string, db: Database) {
    this.url = url;
    this.db = db;
  }

  /** Uses a new database, or the given one, which is migrated already. */
  static async open(given?: string): Promise<ChangesScene> {
    const url = given ?? (await createDatabase());
    const scene = new ChangesScene(url, openDatabase(url));
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
    const [answer] = await lookUpPairs(this.db, [{ dataType, key }]);
    if (!answer || 'refused' in answer) throw new Error(answer?.refused.problem);
    const viewer = new Viewer();
    viewer.stop = gateway.cache.watch(answer.found, viewer);
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
