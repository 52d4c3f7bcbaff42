import { setTimeout as wait } from 'node:timers/promises';
import { PgfreshError, problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { Service } from '../lifecycle/index.ts';
import type { Feed, FeedHeard } from './feed.ts';
import type { MarkedChange } from './marks.ts';
import { isSame, type Pair, type PairReading, type PairState, type ReadPairs } from './pair.ts';
import { hasEnded, parseSnapshot, type Snapshot } from './snapshot.ts';

export interface MirrorOptions {
  readonly feed: Pick<Feed, 'subscribe' | 'watch' | 'unwatch'>;
  readonly read: ReadPairs;
  readonly events: Events;
}

/** Somebody who watches a pair. Neither function may throw. */
export interface Watcher {
  /** Every state that is newer than the last one; states may be skipped, the newest always comes. */
  readonly onState: (state: PairState) => void;
  /** The data type is not there any more, and nothing more will come. */
  readonly onGone: () => void;
}

interface WatchedPair {
  readonly key: string;
  readonly watchers: Set<Watcher>;
  state: PairState | undefined;
  /** Which transactions are in the state; undefined if it is not known what their numbers mean. */
  snapshot: Snapshot | undefined;
}

interface WatchedType {
  readonly id: number;
  readonly pairs: Map<string, WatchedPair>;
  /** Never read yet: somebody waits for these, so they are first. */
  readonly cold: Set<WatchedPair>;
  /** May have changed since they were read. */
  readonly dirty: Set<WatchedPair>;
  /** Whether somebody reads it, or rests after a failure. */
  isBusy: boolean;
  /** How long to rest. */
  pauseMs: number;
  /** How many pairs to read at once: fewer after a failure, so that one bad row does not keep back the others. */
  limit: number;
}

const largestRead = 500;
const readsAtOnce = 4;
const shortestPauseMs = 100;
const longestPauseMs = 5_000;

/**
 * The pairs that are watched through this process, each with its newest state, which is read once for all who watch it.
 * A pair is registered first and read then. What changes during a read is read again; of one pair there is only one read
 * at a time, so a later one has a later snapshot.
 */
export class Mirror extends Service {
  readonly name = 'mirror';
  readonly #options: MirrorOptions;
  readonly #types = new Map<number, WatchedType>();
  /** Types with something to read, which nobody reads now. */
  readonly #waiting = new Set<WatchedType>();
  readonly #working = new Set<Promise<void>>();
  #reads = 0;
  #unsubscribe: (() => void) | undefined;

  constructor(options: MirrorOptions) {
    super();
    this.#options = options;
  }

  /** Calls the watcher with the state that is known, at once, and with every newer one, until the returned function is called. */
  watch({ type: id, key }: Pair, watcher: Watcher): () => void {
    const type = this.#type(id);
    const pair = type.pairs.get(key) ?? this.#add(type, key);
    pair.watchers.add(watcher);
    if (pair.state) watcher.onState(pair.state);
    return () => this.#leave(type, pair, watcher);
  }

  protected async onStart(): Promise<void> {
    this.#unsubscribe = this.#options.feed.subscribe((heard) => this.#hear(heard));
    this.#readOn();
  }

  protected async onStop(): Promise<void> {
    this.#unsubscribe?.();
    await Promise.all(this.#working);
  }

  #type(id: number): WatchedType {
    const known = this.#types.get(id);
    if (known) return known;
    const type: WatchedType = {
      id,
      pairs: new Map(),
      cold: new Set(),
      dirty: new Set(),
      isBusy: false,
      pauseMs: 0,
      limit: largestRead,
    };
    this.#types.set(id, type);
    return type;
  }

  #add(type: WatchedType, key: string): WatchedPair {
    const pair = { key, watchers: new Set<Watcher>(), state: undefined, snapshot: undefined };
    type.pairs.set(key, pair);
    type.cold.add(pair);
    this.#want(type);
    return pair;
  }

  #leave(type: WatchedType, pair: WatchedPair, watcher: Watcher): void {
    pair.watchers.delete(watcher);
    if (pair.watchers.size > 0 || type.pairs.get(pair.key) !== pair) return;
    type.pairs.delete(pair.key);
    type.cold.delete(pair);
    type.dirty.delete(pair);
    if (type.pairs.size === 0) this.#forget(type);
  }

  #forget(type: WatchedType): void {
    if (this.#types.get(type.id) !== type) return;
    this.#types.delete(type.id);
    this.#waiting.delete(type);
    this.#options.feed.unwatch(type.id, this);
  }

  #hear(heard: FeedHeard): void {
    if (heard === 'missed') for (const type of this.#types.values()) this.#soil(type, type.pairs.values(), undefined);
    else for (const change of heard) this.#hearOf(change);
  }

  #hearOf({ type: id, keys, xids }: MarkedChange): void {
    const type = this.#types.get(id);
    if (!type) return;
    if (keys === undefined) return this.#soil(type, type.pairs.values(), xids);
    const pairs = keys.flatMap((key) => type.pairs.get(key) ?? []);
    this.#soil(type, pairs, xids);
  }

  #soil(type: WatchedType, pairs: Iterable<WatchedPair>, xids: readonly number[] | undefined): void {
    // Pairs that were read together have one snapshot.
    const known = new Map<Snapshot, boolean>();
    for (const pair of pairs) {
      // The bus and the marks tell the same; what a state has in it already is not read again.
      if (xids && pair.snapshot && isIn(pair.snapshot, xids, known)) continue;
      // After a crash, numbers of transactions may come again.
      if (!xids) pair.snapshot = undefined;
      if (!type.cold.has(pair)) type.dirty.add(pair);
    }
    this.#want(type);
  }

  #want(type: WatchedType): void {
    // Who reads or rests comes back to it.
    if (type.isBusy || type.cold.size + type.dirty.size === 0) return;
    this.#waiting.add(type);
    this.#readOn();
  }

  #readOn(): void {
    for (const type of this.#waiting) {
      if (this.stopSignal.aborted || this.#reads >= readsAtOnce) return;
      this.#waiting.delete(type);
      type.isBusy = true;
      const work = this.#work(type).finally(() => this.#working.delete(work));
      this.#working.add(work);
    }
  }

  async #work(type: WatchedType): Promise<void> {
    this.#reads++;
    const isDone = await this.#read(type);
    this.#reads--;
    this.#readOn();
    type.pauseMs = isDone ? 0 : Math.min(longestPauseMs, Math.max(shortestPauseMs, type.pauseMs * 2));
    if (!isDone) await wait(type.pauseMs, undefined, { signal: this.stopSignal }).catch(() => {});
    type.isBusy = false;
    if (this.#types.get(type.id) === type) this.#want(type);
  }

  /** Reads some of the pairs; false if that has failed. */
  async #read(type: WatchedType): Promise<boolean> {
    const { feed, read, events } = this.#options;
    let batch: WatchedPair[] = [];
    try {
      await feed.watch(type.id, this);
      batch = take(type);
      const keys = batch.map(({ key }) => key);
      apply(batch, keys.length > 0 ? await read(type.id, keys) : []);
      type.limit = Math.min(largestRead, type.limit * 2);
      return true;
    } catch (error) {
      for (const pair of batch) if (type.pairs.get(pair.key) === pair) type[pair.state ? 'dirty' : 'cold'].add(pair);
      if (error instanceof PgfreshError && error.code === 'PGF_TYPE_UNKNOWN') {
        this.#lose(type);
        return true;
      }
      type.limit = Math.max(1, Math.floor(batch.length / 2));
      events.emit({ type: 'gateway.failed', step: 'read', problem: problemOf(error) });
      return false;
    }
  }

  #lose(type: WatchedType): void {
    this.#forget(type);
    const watchers = [...type.pairs.values()].flatMap((pair) => [...pair.watchers]);
    type.pairs.clear();
    for (const watcher of watchers) watcher.onGone();
  }
}

function isIn(snapshot: Snapshot, xids: readonly number[], known: Map<Snapshot, boolean>): boolean {
  const answer = known.get(snapshot) ?? xids.every((xid) => hasEnded(snapshot, xid));
  known.set(snapshot, answer);
  return answer;
}

/** Takes pairs to read, first those that were never read. From here on they can become dirty again. */
function take({ cold, dirty, limit }: WatchedType): WatchedPair[] {
  const batch: WatchedPair[] = [];
  for (const set of [cold, dirty]) {
    for (const pair of set) {
      if (batch.length >= limit) return batch;
      set.delete(pair);
      batch.push(pair);
    }
  }
  return batch;
}

/** Tells those who watch what is new to them. Whoever has left meanwhile is not there any more. */
function apply(batch: readonly WatchedPair[], readings: readonly PairReading[]): void {
  const byKey = new Map(readings.map((reading) => [reading.key, reading]));
  const snapshot = readings[0] && parseSnapshot(readings[0].snapshot);
  for (const pair of batch) {
    const { key, snapshot: _, ...state } = byKey.get(pair.key)!;
    const had = pair.state;
    if (had && state.version < had.version) {
      throw new Error(
        `the database has gone back: ${key} was read in version ${had.version}, and now in ${state.version}`,
      );
    }
    pair.snapshot = snapshot;
    // The version stays that of the first read which has shown this, so that who has it has missed nothing.
    if (had && isSame(had, state)) continue;
    pair.state = state;
    for (const watcher of pair.watchers) watcher.onState(state);
  }
}
