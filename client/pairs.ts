import { FreshError } from './fresh-error.ts';
import { loading, refusedOf, type Fresh, type Refusal } from './fresh.ts';
import type { PairName, RefreshResult } from './protocol.ts';
import { ServerClock } from './server-clock.ts';
import { Timers } from './timers.ts';

export function nameOf([type, key]: PairName): string {
  return JSON.stringify([type, key]);
}

/** A pair that is viewed in this page, with its state. */
export class Pair {
  readonly pair: PairName;
  readonly name: string;
  readonly listeners = new Set<() => void>();
  readonly refreshes: PromiseWithResolvers<RefreshResult>[] = [];
  /** Reference count. */
  holders = 0;
  /** The same pair with the key as the registry spells it, if that differs. */
  target: Pair | undefined;
  /** The conversation that requested it. */
  asker: unknown;
  readonly #onUpdate: (pair: Pair) => void;
  #fresh: Fresh = loading;
  #viewers: number | undefined;

  constructor(pair: PairName, onUpdate: (pair: Pair) => void) {
    this.pair = pair;
    this.name = nameOf(pair);
    this.#onUpdate = onUpdate;
  }

  get fresh(): Fresh {
    const pair = this.target ?? this;
    return pair.#fresh;
  }

  get viewers(): number | undefined {
    const pair = this.target ?? this;
    return pair.#viewers;
  }

  /** Sets a newer state. Ignores an older one, which can arrive late from another tab. */
  update(fresh: Fresh): void {
    if (fresh.version && this.#fresh.version && fresh.version < this.#fresh.version) return;
    this.#fresh = fresh;
    this.tell();
    this.#onUpdate(this);
  }

  count(viewers: number | undefined): void {
    this.#viewers = viewers;
    this.tell();
  }

  refuse(refusal: Refusal): void {
    this.asker = undefined;
    this.update(refusedOf(refusal, this.#fresh));
    this.settle(({ reject }) => reject(new FreshError(refusal)));
  }

  /** Answers all refresh requests. */
  settle(answer: (refresh: PromiseWithResolvers<RefreshResult>) => void): void {
    (this.target ?? this).refreshes.splice(0).forEach(answer);
  }

  readonly tell = (): void => notifyAll(this.listeners);
}

/** Calls all listeners, even if one throws. Its error is reported as an uncaught error of the page. */
export function notifyAll<Given extends unknown[]>(
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

/** All pairs that are viewed in this page, each once. */
export class Pairs {
  /** The server's clock, by which data goes stale. */
  readonly clock = new ServerClock();
  readonly #pairs = new Map<string, Pair>();
  readonly #aging = new Timers<string>();
  readonly #leaving = new Timers<string>();
  /** Called when a pair is added or removed. */
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

  /** Returns the pair, which stays as long as it is held. Each hold needs a `release`. */
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
    // Kept for a moment after the last release, so that a change of route costs nothing.
    const lingerMs = 1_000;
    if (pair.holders === 0) this.#leaving.start(pair.name, lingerMs, () => this.#remove(pair));
  }

  /** Links a pair to the one with the key as the registry spells it. */
  link(pair: Pair, key: string): void {
    if (pair.target) return;
    const target = this.hold([pair.pair[0], key]);
    target.asker = pair.asker;
    target.refreshes.push(...pair.refreshes.splice(0));
    pair.target = target;
    target.listeners.add(pair.tell);
    pair.tell();
  }

  clear(): void {
    this.#aging.stop();
    this.#leaving.stop();
    this.#pairs.clear();
  }

  /** Makes fresh data stale at its time, without a message. */
  #age(pair: Pair): void {
    const { state, staleAt } = pair.fresh;
    const leftMs = +staleAt! - this.clock.now();
    if (state !== 'fresh' || !staleAt) this.#aging.stop(pair.name);
    else if (leftMs > 0) this.#aging.start(pair.name, leftMs, () => this.#age(pair));
    else pair.update({ ...pair.fresh, state: 'stale' });
  }

  #remove(pair: Pair): void {
    this.#pairs.delete(pair.name);
    this.#aging.stop(pair.name);
    if (pair.target) {
      pair.target.listeners.delete(pair.tell);
      this.release(pair.target);
    }
    this.onChange();
  }
}
