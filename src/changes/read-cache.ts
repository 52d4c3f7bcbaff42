import { failureOf, isTimeout, type Failure } from '../database/index.ts';
import { PgfreshError, problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { Bucket, pause, Service } from '../lifecycle/index.ts';
import type { Change, Heard } from './bus.ts';
import type { Feed } from './outbox-feed.ts';
import type { Pair, ReadPairs } from './read-pairs.ts';
import type { Reader } from './reader.ts';
import { apply, Shelf, type Loss, type WatchedPair, type Watcher } from './read-group.ts';
import { hasEnded, type Snapshot } from './pg-snapshot.ts';
import { Turns, type Lane } from './fair-queue.ts';

export interface MirrorOptions {
  readonly feed: Pick<Feed, 'subscribe' | 'watch' | 'unwatch'>;
  readonly read: ReadPairs;
  readonly events: Events;
  /** Told of timeouts that are to be noted. */
  readonly onTimeout?: (type: number, problem: string) => void;
}

interface WatchedType {
  readonly id: number;
  /** By the name of their reader. */
  readonly shelves: Map<string, Shelf>;
  /** Of each key, the pair on each shelf that has it. */
  readonly pairs: Map<string, Map<Shelf, WatchedPair>>;
}

export const readsAtOnce = 4;
/** As readers of one data type. Of a shared one there is only one read at a time. */
const readsPerType = 3;
/** As readers. One change of a pair with many of them must leave room for everything else. */
const readsPerSecond = 500;
const slowMs = 1_000;
const breathMs = 20;
const few = 50;
const shortestPauseMs = 100;
const longestPauseMs = 5_000;
const patience = 2;

/** Transient failures, unrelated to authorization. */
const passing: ReadonlySet<Failure> = new Set(['connection', 'deadlock', 'serialization', 'lock_timeout', 'resources']);

/**
 * The pairs that are watched through this process, each with its newest state, which is read once for all who see it alike.
 * A pair is registered first and read then. What changes during a read is read again; of one pair there is only one read
 * at a time, so a later one has a later snapshot.
 */
export class Mirror extends Service {
  readonly name = 'mirror';
  readonly #options: MirrorOptions;
  readonly #types = new Map<number, WatchedType>();
  readonly #shared = new Turns<Shelf>(readsAtOnce);
  readonly #private = new Turns<Shelf>(readsAtOnce, readsPerType);
  readonly #budget = new Bucket(readsPerSecond, readsPerSecond / 5);
  readonly #working = new Set<Promise<void>>();
  #timer: NodeJS.Timeout | undefined;
  readonly #probes = new Set<NodeJS.Timeout>();
  #unsubscribe: (() => void) | undefined;

  constructor(options: MirrorOptions) {
    super();
    this.#options = options;
  }

  /**
   * Calls the watcher with the state that is known, at once, and with every newer one, until the returned function is
   * called. With a reader, the state is what he may see.
   */
  watch({ type: id, key }: Pair, watcher: Watcher, reader?: Reader): () => void {
    const type = this.#type(id);
    const shelf = shelfOf(type, reader);
    const pair = type.pairs.get(key)?.get(shelf) ?? this.#add(type, shelf, key);
    pair.watchers.add(watcher);
    if (pair.state) watcher.onState(pair.state);
    else pair.isHeld ||= this.#turns(shelf).isHeld(id);
    if (pair.isHeld) watcher.onHeld();
    return () => this.#leave(type, pair, watcher);
  }

  /** Reads again what readers see: what they may see changes without anybody marking that. */
  reread(): void {
    for (const type of this.#types.values()) {
      const [first] = type.shelves.values();
      if (!first?.reader) continue;
      for (const pair of pairsOf(type)) if (pair.shelf.reader) this.#soilPair(pair, 'many');
    }
  }

  protected async onStart(): Promise<void> {
    this.#unsubscribe = this.#options.feed.subscribe((heard) => this.#hear(heard));
    this.#readOn();
  }

  protected async onStop(): Promise<void> {
    this.#unsubscribe?.();
    clearTimeout(this.#timer);
    for (const timer of this.#probes) clearTimeout(timer);
    await Promise.all(this.#working);
  }

  #type(id: number): WatchedType {
    const known = this.#types.get(id);
    if (known) return known;
    const type: WatchedType = { id, shelves: new Map(), pairs: new Map() };
    this.#types.set(id, type);
    return type;
  }

  #add(type: WatchedType, shelf: Shelf, key: string): WatchedPair {
    const pair = {
      key,
      shelf,
      watchers: new Set<Watcher>(),
      state: undefined,
      snapshot: undefined,
      failures: 0,
      isHeld: false,
    };
    const ofKey = type.pairs.get(key);
    if (ofKey) ofKey.set(shelf, pair);
    else type.pairs.set(key, new Map([[shelf, pair]]));
    shelf.size += 1;
    shelf.cold.add(pair);
    this.#want(shelf, 'first');
    return pair;
  }

  #leave(type: WatchedType, pair: WatchedPair, watcher: Watcher): void {
    pair.watchers.delete(watcher);
    if (pair.watchers.size === 0) this.#remove(type, pair);
  }

  #remove(type: WatchedType, pair: WatchedPair): void {
    const { key, shelf } = pair;
    const ofKey = type.pairs.get(key);
    if (ofKey?.get(shelf) !== pair) return;
    ofKey.delete(shelf);
    if (ofKey.size === 0) type.pairs.delete(key);
    shelf.cold.delete(pair);
    shelf.dirty.delete(pair);
    shelf.size -= 1;
    if (shelf.size > 0) return;
    type.shelves.delete(shelf.reader?.name ?? '');
    this.#turns(shelf).delete(shelf);
    if (type.shelves.size === 0) this.#forget(type);
  }

  #forget(type: WatchedType): void {
    if (this.#types.get(type.id) !== type) return;
    this.#types.delete(type.id);
    for (const shelf of type.shelves.values()) this.#turns(shelf).delete(shelf);
    this.#options.feed.unwatch(type.id, this);
  }

  #hear(heard: Heard): void {
    const changes: readonly Change[] =
      heard === 'missed' ? [...this.#types.keys()].map((type) => ({ type, keys: undefined })) : heard;
    for (const [id, ofType] of Map.groupBy(changes, ({ type }) => type)) {
      const type = this.#types.get(id);
      if (type) this.#hearOf(type, ofType);
    }
  }

  #hearOf(type: WatchedType, changes: readonly Change[]): void {
    const told = changes.map(({ keys, xids }) => ({ pairs: pairsWith(type, keys), xids }));
    const lane = told.reduce((sum, { pairs }) => sum + pairs.length, 0) > few ? 'many' : 'few';
    for (const { pairs, xids } of told) this.#soil(pairs, xids, lane);
  }

  #soil(pairs: readonly WatchedPair[], xids: readonly number[] | undefined, lane: Lane): void {
    // Pairs that were read together have one snapshot.
    const known = new Map<Snapshot, boolean>();
    for (const pair of pairs) {
      // The bus and the marks tell the same; what a state has in it already is not read again.
      if (xids && pair.snapshot && isIn(pair.snapshot, xids, known)) continue;
      // After a crash, numbers of transactions may come again.
      if (!xids) pair.snapshot = undefined;
      this.#soilPair(pair, lane, xids);
    }
  }

  #soilPair(pair: WatchedPair, lane: Lane, xids?: readonly number[]): void {
    if (!pair.shelf.cold.has(pair)) pair.shelf.soil(pair, xids);
    this.#want(pair.shelf, lane);
  }

  #turns(shelf: Shelf): Turns<Shelf> {
    return shelf.reader ? this.#private : this.#shared;
  }

  #want(shelf: Shelf, lane: Lane): void {
    // A busy entry re-queues itself.
    if (shelf.isBusy || shelf.cold.size + shelf.dirty.size === 0) return;
    this.#turns(shelf).add(shelf, lane);
    this.#readOn();
  }

  #readOn(): void {
    if (this.stopSignal.aborted) return;
    for (let shelf = this.#shared.next(); shelf; shelf = this.#shared.next()) this.#begin(shelf);
    while (this.#private.hasTurn) {
      if (!this.#budget.take()) {
        this.#timer ??= setTimeout(() => ((this.#timer = undefined), this.#readOn()), breathMs);
        return;
      }
      this.#begin(this.#private.next()!);
    }
  }

  #begin(shelf: Shelf): void {
    shelf.isBusy = true;
    const work = this.#work(shelf).finally(() => this.#working.delete(work));
    this.#working.add(work);
  }

  async #work(shelf: Shelf): Promise<void> {
    const turns = this.#turns(shelf);
    const since = performance.now();
    const outcome = await this.#read(shelf, turns);
    const isSlow = performance.now() - since > slowMs;
    if (typeof outcome === 'object') {
      if (turns.end(shelf, 'timeout')) this.#options.onTimeout?.(shelf.type, outcome.timeout);
      if (turns.isHeld(shelf.type)) this.#hold(shelf.type, turns);
    } else turns.end(shelf, isSlow ? 'slow' : 'done');
    this.#readOn();
    shelf.pauseMs = outcome === 'failed' ? Math.min(longestPauseMs, Math.max(shortestPauseMs, shelf.pauseMs * 2)) : 0;
    if (outcome === 'failed') await pause(shelf.pauseMs, this.stopSignal);
    shelf.isBusy = false;
    if (shelf.size > 0) this.#want(shelf, shelf.cold.size > 0 ? 'first' : 'few');
  }

  /** Reads some of the pairs, or one to see whether the type answers again. */
  async #read(shelf: Shelf, turns: Turns<Shelf>): Promise<'done' | 'failed' | { readonly timeout: string }> {
    const { feed, read, events } = this.#options;
    const type = this.#types.get(shelf.type)!;
    const isProbe = turns.isHeld(shelf.type);
    let batch: WatchedPair[] = [];
    try {
      await feed.watch(shelf.type, this);
      batch = shelf.take(isProbe ? 1 : shelf.batch.size);
      const keys = batch.map(({ key }) => key);
      const reading = { reader: shelf.reader, isShort: turns.isShort(shelf.type) };
      apply(batch, keys.length > 0 ? await read(shelf.type, keys, reading) : []);
      shelf.batch.grow();
      return 'done';
    } catch (error) {
      shelf.putBack(batch);
      const code = error instanceof PgfreshError ? (error as PgfreshError).code : undefined;
      if (code === 'PGF_TYPE_UNKNOWN') this.#loseType(type);
      if (code === 'PGF_LIVE_ROLE') this.#lose(type, pairsOf(type, shelf), error as PgfreshError);
      if (code === 'PGF_TYPE_UNKNOWN' || code === 'PGF_LIVE_ROLE') return 'done';
      const problem = problemOf(error);
      if (isProbe && isTimeout(error)) return { timeout: problem };
      events.emit({ type: 'gateway.failed', step: 'read', problem });
      const isFinal = code === undefined && !passing.has(failureOf(error));
      if (shelf.reader && batch.length === 1 && isFinal) this.#undecided(type, batch[0]!);
      shelf.batch.shrink(batch.length);
      // What takes a reader too long may be his own policies.
      const isOfType = failureOf(error) === 'lock_timeout' || (isTimeout(error) && !shelf.reader);
      return isOfType ? { timeout: problem } : 'failed';
    }
  }

  /** Tells those who wait for a type that is held, and comes back to it. */
  #hold(id: number, turns: Turns<Shelf>): void {
    const shelves = [...(this.#types.get(id)?.shelves.values() ?? [])].filter((each) => this.#turns(each) === turns);
    for (const pair of shelves.flatMap(({ cold, dirty }) => [...cold, ...dirty.keys()])) {
      if (pair.isHeld) continue;
      pair.isHeld = true;
      for (const watcher of pair.watchers) watcher.onHeld();
    }
    this.#probeLater(id, turns);
  }

  #probeLater(id: number, turns: Turns<Shelf>): void {
    const timer = setTimeout(
      () => {
        this.#probes.delete(timer);
        // A timer may be early by a part of a millisecond.
        if (turns.pauseMs(id) > 0) this.#probeLater(id, turns);
        else this.#readOn();
      },
      Math.ceil(turns.pauseMs(id)),
    );
    this.#probes.add(timer);
  }

  // Whether he may see it, its policies do not say. What they raised is for the log: it may tell what is in a row.
  #undecided(type: WatchedType, pair: WatchedPair): void {
    pair.failures += 1;
    if (pair.failures >= patience) this.#lose(type, [pair], 'undecided');
  }

  #lose(type: WatchedType, pairs: readonly WatchedPair[], why: Loss): void {
    for (const pair of pairs) {
      this.#remove(type, pair);
      for (const watcher of pair.watchers) watcher.onGone(why);
    }
  }

  #loseType(type: WatchedType): void {
    this.#forget(type);
    const watchers = pairsOf(type).flatMap((pair) => [...pair.watchers]);
    for (const shelf of type.shelves.values()) shelf.size = 0;
    type.pairs.clear();
    for (const watcher of watchers) watcher.onGone('gone');
  }
}

function shelfOf(type: WatchedType, reader: Reader | undefined): Shelf {
  const name = reader?.name ?? '';
  const known = type.shelves.get(name);
  if (known) return known;
  const shelf = new Shelf(type.id, reader);
  type.shelves.set(name, shelf);
  return shelf;
}

function pairsOf(type: WatchedType, shelf?: Shelf): WatchedPair[] {
  const all = [...type.pairs.values()].flatMap((ofKey) => [...ofKey.values()]);
  return shelf ? all.filter((pair) => pair.shelf === shelf) : all;
}

function pairsWith(type: WatchedType, keys: readonly string[] | undefined): WatchedPair[] {
  return keys?.flatMap((key) => [...(type.pairs.get(key)?.values() ?? [])]) ?? pairsOf(type);
}

function isIn(snapshot: Snapshot, xids: readonly number[], known: Map<Snapshot, boolean>): boolean {
  const answer = known.get(snapshot) ?? xids.every((xid) => hasEnded(snapshot, xid));
  known.set(snapshot, answer);
  return answer;
}
