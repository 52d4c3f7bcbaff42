import { performance } from 'node:perf_hooks';
import type { Queryable } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { every, Service, Wake } from '../lifecycle/index.ts';
import type { Bus, ChangeNotice } from './bus.ts';
import { changesOfMarks, type MarkedChanges } from './marked-changes.ts';

export interface OutboxFeedOptions {
  readonly db: Queryable;
  readonly bus: Bus;
  readonly events: Events;
  /** How often to read the outbox itself, in case the bus is silent. */
  readonly pollMs: number;
  /** Called when one more data type is watched. */
  readonly onWatching: () => void;
}

/** Slightly less than the time for which marks stay in the outbox after they were published. */
const maxPollGapMs = 9_000;

const poll = {
  name: 'pgfresh.poll',
  text: 'select pgfresh_engine.watch_changes($1::int[], $2::pg_snapshot) as answer',
};

/**
 * The changes that this process learns of, from the bus and by polling the outbox. If the bus fails, a change arrives
 * a second later, and none is lost. A change may arrive by both ways. Each poll also tells the database which data types
 * are watched.
 */
export class OutboxFeed extends Service {
  readonly name = 'feed';
  readonly #options: OutboxFeedOptions;
  /** The watched types, each with its watchers. */
  readonly #types = new Map<number, Set<object>>();
  /** Watched types of which the database already marks changes. */
  readonly #marked = new Set<number>();
  readonly #listeners = new Set<(notice: ChangeNotice) => void>();
  readonly #wake = new Wake();
  /** The snapshot of the last poll; undefined if marks may have been deleted since. */
  #since: string | undefined;
  #polledAt = -Infinity;
  #polling: Promise<void> | undefined;
  #loop: Promise<void> | undefined;
  #unsubscribe: (() => void) | undefined;

  constructor(options: OutboxFeedOptions) {
    super();
    this.#options = options;
  }

  get isWatching(): boolean {
    return this.#types.size > 0;
  }

  subscribe(listener: (notice: ChangeNotice) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Resolves once the database marks changes of the type. Changes after a later read are then not missed. */
  async watch(type: number, watcher: object): Promise<void> {
    const watchers = this.#types.get(type);
    if (watchers) watchers.add(watcher);
    else {
      this.#types.set(type, new Set([watcher]));
      this.#options.onWatching();
      this.#wake.wake();
    }
    // A poll that is already running may not include the type.
    while (!this.#marked.has(type) && this.#types.has(type)) await this.poll();
  }

  unwatch(type: number, watcher: object): void {
    const watchers = this.#types.get(type);
    if (!watchers?.delete(watcher) || watchers.size > 0) return;
    this.#types.delete(type);
    this.#marked.delete(type);
  }

  /** Reads the outbox now, or joins the poll that is running. */
  poll(): Promise<void> {
    this.#polling ??= this.#poll().finally(() => (this.#polling = undefined));
    return this.#polling;
  }

  protected async onStart(): Promise<void> {
    this.#unsubscribe = this.#options.bus.subscribe((notice) => this.#notify(notice));
    const { pollMs, events } = this.#options;
    this.#loop = every(pollMs, () => this.#pollIfWatching(), {
      signal: this.stopSignal,
      wake: this.#wake,
      now: true,
      failed: (error) => events.emit({ type: 'gateway.failed', step: 'poll', problem: problemOf(error) }),
    });
  }

  protected async onStop(): Promise<void> {
    this.#unsubscribe?.();
    await this.#loop;
    await this.#polling?.catch(() => {});
  }

  async #pollIfWatching(): Promise<void> {
    if (this.isWatching) await this.poll();
    else this.#since = undefined;
  }

  async #poll(): Promise<void> {
    const types = [...this.#types.keys()];
    const startedAt = performance.now();
    const since = this.#since;
    this.#since = undefined;
    const [row] = await this.#options.db.query<{ answer: MarkedChanges }>(poll, [types, since ?? null]);
    const { answer } = row!;
    const isComplete = since !== undefined && performance.now() - this.#polledAt < maxPollGapMs;
    this.#since = answer.snapshot;
    this.#polledAt = startedAt;
    for (const type of types) if (this.#types.has(type)) this.#marked.add(type);
    const changes = changesOfMarks(answer.changes);
    if (!isComplete) this.#notify('missed');
    else if (changes.length > 0) this.#notify(changes);
  }

  #notify(notice: ChangeNotice): void {
    for (const listener of this.#listeners) listener(notice);
  }
}
