import { performance } from 'node:perf_hooks';
import type { Queryable } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { every, Service, Wake } from '../lifecycle/index.ts';
import type { Bus, Heard } from './bus.ts';
import { asChanges, type MarkedChanges } from './marked-changes.ts';

export interface FeedOptions {
  readonly db: Queryable;
  readonly bus: Bus;
  readonly events: Events;
  /** How often the marks themselves are read, in case the bus says nothing. */
  readonly pollMs: number;
  /** Somebody has begun to watch a type. */
  readonly onWatching: () => void;
}

/** A little less than the time for which marks are kept after they were published. */
const longestGapMs = 9_000;

const poll = {
  name: 'pgfresh.poll',
  text: 'select pgfresh_engine.watch_changes($1::int[], $2::pg_snapshot) as answer',
};

/**
 * What this process hears of changes: from the bus, and from the marks themselves, so that a bus which has fallen silent
 * costs a second and nothing else. The same change may come by both. Reading the marks also says which types are watched.
 */
export class Feed extends Service {
  readonly name = 'feed';
  readonly #options: FeedOptions;
  /** The types, each with those for whom it is watched. */
  readonly #types = new Map<number, Set<object>>();
  /** Those whose changes are marked by now. */
  readonly #marked = new Set<number>();
  readonly #listeners = new Set<(heard: Heard) => void>();
  readonly #wake = new Wake();
  /** The snapshot up to which marks were read; undefined if some may be gone since. */
  #since: string | undefined;
  #polledAt = -Infinity;
  #polling: Promise<void> | undefined;
  #loop: Promise<void> | undefined;
  #unsubscribe: (() => void) | undefined;

  constructor(options: FeedOptions) {
    super();
    this.#options = options;
  }

  get isWatching(): boolean {
    return this.#types.size > 0;
  }

  subscribe(listener: (heard: Heard) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Settles when changes of the type are marked. What is read after that and changes later is heard of. */
  async watch(type: number, who: object): Promise<void> {
    const watchers = this.#types.get(type);
    if (watchers) watchers.add(who);
    else {
      this.#types.set(type, new Set([who]));
      this.#options.onWatching();
      this.#wake.wake();
    }
    // One that is under way may not have said it.
    while (!this.#marked.has(type) && this.#types.has(type)) await this.poll();
  }

  unwatch(type: number, who: object): void {
    const watchers = this.#types.get(type);
    if (!watchers?.delete(who) || watchers.size > 0) return;
    this.#types.delete(type);
    this.#marked.delete(type);
  }

  /** Reads the marks now, or waits for whoever is just doing that. */
  poll(): Promise<void> {
    this.#polling ??= this.#poll().finally(() => (this.#polling = undefined));
    return this.#polling;
  }

  protected async onStart(): Promise<void> {
    this.#unsubscribe = this.#options.bus.subscribe((heard) => this.#tell(heard));
    const { pollMs, events } = this.#options;
    this.#loop = every(pollMs, () => this.#look(), {
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

  async #look(): Promise<void> {
    if (this.isWatching) await this.poll();
    else this.#since = undefined;
  }

  async #poll(): Promise<void> {
    const types = [...this.#types.keys()];
    const began = performance.now();
    const since = this.#since;
    this.#since = undefined;
    const [row] = await this.#options.db.query<{ answer: MarkedChanges }>(poll, [types, since ?? null]);
    const { answer } = row!;
    const isWhole = since !== undefined && performance.now() - this.#polledAt < longestGapMs;
    this.#since = answer.snapshot;
    this.#polledAt = began;
    for (const type of types) if (this.#types.has(type)) this.#marked.add(type);
    const changes = asChanges(answer.changes);
    if (!isWhole) this.#tell('missed');
    else if (changes.length > 0) this.#tell(changes);
  }

  #tell(heard: Heard): void {
    for (const listener of this.#listeners) listener(heard);
  }
}
