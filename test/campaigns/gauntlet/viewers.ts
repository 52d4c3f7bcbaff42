import type pg from 'pg';
import { createClient, type Fresh, type FreshClient } from '../../../client/index.ts';
import { allowances } from './allowances.ts';
import type { Journal } from './journal.ts';
import type { Wants } from './wants.ts';

type Row = { key: string; value: number; fetched_at: string };
type AnyTypes = Record<string, Row>;

export interface ViewerContext {
  readonly db: pg.Pool;
  readonly wants: Wants;
  readonly journal: Journal;
  readonly hanging: ReadonlySet<string>;
  /** By how many milliseconds the machine was slow just now. */
  readonly lag: number;
}

const heartbeatMs = 20_000;

/** People who look by SQL: an upsert for each pair, and a heartbeat while they look. */
export class SqlViewers {
  readonly #context: ViewerContext;
  readonly #looks = new Map<string, { user: string; type: string; key: string; beatAt: number; silent: boolean }>();

  constructor(context: ViewerContext) {
    this.#context = context;
  }

  get looks() {
    return [...this.#looks.values()];
  }

  async look(user: string, type: string, key: string): Promise<void> {
    const name = `${user} ${type} ${key}`;
    const look = { user, type, key, beatAt: Date.now(), silent: false };
    const known = this.#looks.get(name);
    if (known) known.silent = false;
    else this.#looks.set(name, look);
    this.#context.wants.hold(type, key, `sql ${user}`);
    await this.#beat(known ?? look);
  }

  async leave(user: string, type: string, key: string): Promise<void> {
    if (!this.#looks.delete(`${user} ${type} ${key}`)) return;
    const { wants } = this.#context;
    try {
      await this.#call('pgfresh.remove_active_subscription', { user, type, key });
    } finally {
      wants.leave(type, key, `sql ${user}`);
    }
  }

  /** The user goes away without a word, or has done so a while ago. */
  fallSilent(user: string, type: string, key: string, agoMs = 0): void {
    const look = this.#looks.get(`${user} ${type} ${key}`);
    if (!look || look.silent) return;
    look.silent = true;
    this.#context.wants.leave(type, key, `sql ${user}`, allowances.silence - agoMs);
  }

  async beatAll(): Promise<void> {
    const now = Date.now();
    const due = this.looks.filter(({ beatAt, silent }) => !silent && now - beatAt >= heartbeatMs);
    for (const look of due) await this.#beat(look);
  }

  async leaveAll(): Promise<void> {
    for (const { user, type, key } of this.looks) await this.leave(user, type, key);
  }

  async #beat(look: { user: string; type: string; key: string; beatAt: number }): Promise<void> {
    look.beatAt = Date.now();
    await this.#call('pgfresh.upsert_active_subscription', look);
  }

  async #call(name: string, { user, type, key }: { user: string; type: string; key: string }): Promise<void> {
    const { db, journal, hanging } = this.#context;
    const began = performance.now();
    const isHanging = hanging.has(type);
    try {
      await db.query(`select ${name}($1::text, $2::text, $3::text)`, [user, key, type]);
    } catch (error) {
      // A key or data type that is not there now is refused by a code; the caller asks again at the next heartbeat.
      const problem = (error as Error).message;
      const isExpected =
        /^PGF_(KEY_UNKNOWN|TYPE_UNKNOWN|REGISTRY_INVALID)/.test(problem) || isHanging || hanging.has(type);
      const words = `${name}(${user}, ${key}, ${type}) after ${Math.round(performance.now() - began)} ms: ${problem}`;
      if (!isExpected) journal.violated('viewers are not refused', { type, key }, words);
    }
    const ms = performance.now() - began;
    const words = `${name}(${user}, ${key}, ${type}) has returned after ${Math.round(ms)} ms`;
    if (ms > allowances.viewerCall + this.#context.lag && !isHanging && !hanging.has(type))
      journal.violated('viewers do not wait', { type, key }, words);
  }
}

/** A page: the real client on one gateway. Notes what it is told, and that no version goes back. */
export class Page {
  readonly name: string;
  readonly #context: ViewerContext;
  readonly #client: FreshClient<AnyTypes>;
  readonly #stops = new Map<string, { type: string; key: string; stop: () => void }>();
  readonly #versions = new Map<string, string>();

  constructor(name: string, url: string, context: ViewerContext) {
    this.name = name;
    this.#context = context;
    this.#client = createClient<AnyTypes>({ url, transport: 'websocket', hiddenFor: Infinity });
  }

  get looks() {
    return [...this.#stops.values()];
  }

  get status() {
    return this.#client.status;
  }

  look(type: string, key: string): void {
    const name = `${type} ${key}`;
    if (this.#stops.has(name)) return;
    this.#context.wants.hold(type, key, `page ${this.name}`);
    const stop = this.#client.subscribe(type, key, (fresh) => this.#hear(type, key, fresh));
    this.#stops.set(name, { type, key, stop });
  }

  leave(type: string, key: string): void {
    const name = `${type} ${key}`;
    this.#stops.get(name)?.stop();
    if (this.#stops.delete(name)) this.#context.wants.leave(type, key, `page ${this.name}`);
  }

  leaveAll(): void {
    for (const { type, key } of this.looks) this.leave(type, key);
  }

  peek(type: string, key: string): Fresh<Row> {
    return this.#client.peek(type, key);
  }

  async refreshNow(type: string, key: string): Promise<void> {
    this.#context.wants.queued(type, key);
    // Refused, or not connected: what becomes of the pair is seen by the invariants.
    await this.#client.refreshNow(type, key).catch(() => {});
  }

  /** When the page has heard of the pair, and when it has a row. */
  async firstLook(
    type: string,
    key: string,
    patience: { snapshot: number; row: number },
  ): Promise<{ snapshot?: number; row?: number }> {
    const began = performance.now();
    const seen: { snapshot?: number; row?: number } = {};
    const { promise, resolve } = Promise.withResolvers<void>();
    const stop = this.#client.subscribe(type, key, (fresh) => {
      if (fresh.state === 'loading') return;
      seen.snapshot ??= performance.now() - began;
      if (fresh.rows.length === 0) return;
      seen.row = performance.now() - began;
      resolve();
    });
    const timer = setTimeout(resolve, Math.max(patience.snapshot, patience.row));
    await promise;
    clearTimeout(timer);
    stop();
    return seen;
  }

  close(): void {
    this.#client.close();
  }

  #hear(type: string, key: string, { version }: Fresh<Row>): void {
    if (version === null) return;
    const name = `${type} ${key}`;
    const before = this.#versions.get(name);
    if (before !== undefined && version < before)
      this.#context.journal.violated(
        'versions never go back',
        { type, key },
        `page ${this.name} got ${version} after ${before}`,
      );
    this.#versions.set(name, version);
  }
}
