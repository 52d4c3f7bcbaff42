import { FreshError } from './fresh-error.ts';
import { loading, refusedOf, type Fresh, type Refusal } from './fresh.ts';
import type { PairName, RefreshResult } from './protocol.ts';
import { ServerClock } from './server-clock.ts';
import { Timers } from './timers.ts';

export function nameOf([type, key]: PairName): string {
  return JSON.stringify([type, key]);
}

/** A pair that somebody in this page looks at, and what is known of it. */
export class Pair {
  readonly pair: PairName;
  readonly name: string;
  readonly listeners = new Set<() => void>();
  readonly refreshes: PromiseWithResolvers<RefreshResult>[] = [];
  /** How many hold it. */
  holders = 0;
  /** The same pair, as its data type writes it. */
  meant: Pair | undefined;
  /** Who has asked the server for it. */
  asker: unknown;
  readonly #age: (pair: Pair) => void;
  #fresh: Fresh = loading;
  #viewers: number | undefined;

  constructor(pair: PairName, age: (pair: Pair) => void) {
    this.pair = pair;
    this.name = nameOf(pair);
    this.#age = age;
  }

  get fresh(): Fresh {
    const pair = this.meant ?? this;
    return pair.#fresh;
  }

  get viewers(): number | undefined {
    const pair = this.meant ?? this;
    return pair.#viewers;
  }

  /** Takes a newer state. One that is older came late, by way of another tab. */
  become(fresh: Fresh): void {
    if (fresh.version && this.#fresh.version && fresh.version < this.#fresh.version) return;
    this.#fresh = fresh;
    this.tell();
    this.#age(this);
  }

  count(viewers: number | undefined): void {
    this.#viewers = viewers;
    this.tell();
  }

  refuse(refusal: Refusal): void {
    this.asker = undefined;
    this.become(refusedOf(refusal, this.#fresh));
    this.settle(({ reject }) => reject(new FreshError(refusal)));
  }

  /** Answers all who have asked for a refresh. */
  settle(answer: (refresh: PromiseWithResolvers<RefreshResult>) => void): void {
    (this.meant ?? this).refreshes.splice(0).forEach(answer);
  }

  readonly tell = (): void => tellAll(this.listeners);
}

/** Tells all, also if one of them throws; that is for whoever listens to errors of the page. */
export function tellAll<Given extends unknown[]>(
  listeners: Iterable<(...given: Given) => void>,
  ...given: Given
): void {
  for (const listener of listeners) {
    try {
      listener(...given);
    } catch (error) {
      queueMicrotask(() => {
        throw error;
      });
    }
  }
}

/** All pairs of this page, each once, however many look at it. */
export class Pairs {
  /** The server's, by which rows grow old. */
  readonly clock = new ServerClock();
  readonly #pairs = new Map<string, Pair>();
  readonly #aging = new Timers<string>();
  readonly #leaving = new Timers<string>();
  /** Called when there is one more or one less. */
  onChange: () => void = () => {};

  get size(): number {
    return this.#pairs.size;
  }

  [Symbol.iterator](): Iterator<Pair> {
    return this.#pairs.values();
  }

  find(pair: PairName): Pair | undefined {
    return this.#pairs.get(nameOf(pair));
  }

  /** The pair, which stays as long as it is held. Each hold needs a `release`. */
  hold(named: PairName): Pair {
    let pair = this.find(named);
    if (!pair) {
      pair = new Pair(named, (each) => this.#age(each));
      this.#pairs.set(pair.name, pair);
      pair.holders = 1;
      this.onChange();
      return pair;
    }
    this.#leaving.stop(pair.name);
    pair.holders += 1;
    return pair;
  }

  release(pair: Pair): void {
    if (this.find(pair.pair) !== pair) return;
    pair.holders -= 1;
    // A pair is kept for a moment after the last one has left, so that turning a page costs nothing.
    const lingerMs = 1_000;
    if (pair.holders === 0) this.#leaving.start(pair.name, lingerMs, () => this.#remove(pair));
  }

  /** Learns that a pair is another one, written differently. */
  identify(pair: Pair, key: string): void {
    if (pair.meant) return;
    const meant = this.hold([pair.pair[0], key]);
    meant.asker = pair.asker;
    meant.refreshes.push(...pair.refreshes.splice(0));
    pair.meant = meant;
    meant.listeners.add(pair.tell);
    pair.tell();
  }

  clear(): void {
    this.#aging.stop();
    this.#leaving.stop();
    this.#pairs.clear();
  }

  /** No message says that time has passed. */
  #age(pair: Pair): void {
    const { state, staleAt } = pair.fresh;
    const leftMs = +staleAt! - this.clock.now();
    if (state !== 'fresh' || !staleAt) this.#aging.stop(pair.name);
    else if (leftMs > 0) this.#aging.start(pair.name, leftMs, () => this.#age(pair));
    else pair.become({ ...pair.fresh, state: 'stale' });
  }

  #remove(pair: Pair): void {
    this.#pairs.delete(pair.name);
    this.#aging.stop(pair.name);
    if (pair.meant) {
      pair.meant.listeners.delete(pair.tell);
      this.release(pair.meant);
    }
    this.onChange();
  }
}
