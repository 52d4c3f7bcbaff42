import { FreshError } from './fresh-error.ts';
import { loading, refusedOf, type Fresh, type Refusal } from './fresh.ts';
import type { PairName, RefreshResult } from './protocol.ts';

/** How long a pair is kept after the last one has left, so that turning a page costs nothing. */
const lingerMs = 1_000;

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
  leaving: ReturnType<typeof setTimeout> | undefined;
  /** The same pair, as its data type writes it. */
  meant: Pair | undefined;
  #fresh: Fresh = loading;
  #viewers: number | undefined;

  constructor(pair: PairName) {
    this.pair = pair;
    this.name = nameOf(pair);
  }

  get fresh(): Fresh {
    return (this.meant ?? this).#fresh;
  }

  get viewers(): number | undefined {
    return (this.meant ?? this).#viewers;
  }

  /** Takes a newer state. One that is older came late, by way of another tab. */
  become(fresh: Fresh): void {
    if (fresh.version !== null && this.#fresh.version !== null && fresh.version < this.#fresh.version) return;
    this.#fresh = fresh;
    this.tell();
  }

  count(viewers: number | undefined): void {
    this.#viewers = viewers;
    this.tell();
  }

  refuse(refusal: Refusal): void {
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
  readonly #pairs = new Map<string, Pair>();
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
      pair = new Pair(named);
      this.#pairs.set(pair.name, pair);
      pair.holders = 1;
      this.onChange();
      return pair;
    }
    clearTimeout(pair.leaving);
    pair.holders += 1;
    return pair;
  }

  release(pair: Pair): void {
    if (this.find(pair.pair) !== pair) return;
    pair.holders -= 1;
    if (pair.holders === 0) pair.leaving = setTimeout(() => this.#remove(pair), lingerMs);
  }

  /** Learns that a pair is another one, written differently. */
  identify(pair: Pair, key: string): void {
    if (pair.meant) return;
    const meant = this.hold([pair.pair[0], key]);
    meant.refreshes.push(...pair.refreshes.splice(0));
    pair.meant = meant;
    meant.listeners.add(pair.tell);
    pair.tell();
  }

  clear(): void {
    for (const pair of this.#pairs.values()) clearTimeout(pair.leaving);
    this.#pairs.clear();
  }

  #remove(pair: Pair): void {
    this.#pairs.delete(pair.name);
    if (pair.meant) {
      pair.meant.listeners.delete(pair.tell);
      this.release(pair.meant);
    }
    this.onChange();
  }
}
