import { TimeoutBreaker } from './timeout-breaker.ts';

interface TypedItem {
  readonly type: number | string;
}

/** First reads, changes of a few pairs, and changes of so many pairs that the others must not wait for them. */
const queueNames = ['first', 'few', 'many'] as const;
export type QueueName = (typeof queueNames)[number];

/** How a run ended: in time, late, or cut off by its time limit. */
export type RunResult = 'done' | 'slow' | 'timeout';

/**
 * Decides which item runs next. The queues take turns, and so do the data types within a queue. The number of concurrent
 * runs is limited in total and per type, so that one type cannot take all connections. A type that was just slow gets
 * one run at a time; an unresponsive type gets one probe per second.
 */
export class FairQueue<Item extends TypedItem> {
  readonly #maxRuns: number;
  readonly #maxRunsPerType: number;
  readonly #queues = queueNames.map(() => new Map<Item['type'], Set<Item>>());
  /** The index of the queue in which each item waits. */
  readonly #queueOf = new Map<Item, number>();
  readonly #runsOfType = new Map<Item['type'], number>();
  readonly #slowTypes = new Set<Item['type']>();
  readonly #breaker = new TimeoutBreaker<Item['type']>();
  #runs = 0;
  #lastQueue = queueNames.length - 1;

  constructor(maxRuns: number, maxRunsPerType = maxRuns) {
    this.#maxRuns = maxRuns;
    this.#maxRunsPerType = maxRunsPerType;
  }

  /** Whether the type gets only probes. */
  isUnresponsive(type: Item['type']): boolean {
    return this.#breaker.isUnresponsive(type);
  }

  /** Whether the next run of the type is a probe that gets only a short time limit. */
  isShortProbe(type: Item['type']): boolean {
    return this.#breaker.isShortProbe(type);
  }

  /** Milliseconds until the type may run; 0 if it may now. */
  waitMs(type: Item['type']): number {
    return this.#breaker.waitMs(type);
  }

  /** Adds an item. One that waits already stays in the better of the two queues. */
  add(item: Item, name: QueueName): void {
    const index = queueNames.indexOf(name);
    if ((this.#queueOf.get(item) ?? Infinity) <= index) return;
    this.delete(item);
    this.#queueOf.set(item, index);
    const items = this.#queues[index]!.get(item.type);
    if (items) items.add(item);
    else this.#queues[index]!.set(item.type, new Set([item]));
  }

  delete(item: Item): void {
    const index = this.#queueOf.get(item);
    if (index === undefined) return;
    this.#queueOf.delete(item);
    const items = this.#queues[index]!.get(item.type)!;
    items.delete(item);
    if (items.size === 0) this.#queues[index]!.delete(item.type);
  }

  /** Whether an item waits that may run now. */
  get hasNext(): boolean {
    return this.#find() !== undefined;
  }

  /** Takes the item that runs next, if one may run now. The caller must `end` it. */
  next(): Item | undefined {
    const found = this.#find();
    if (!found) return undefined;
    const { index, type, items } = found;
    const [item] = items;
    this.delete(item!);
    // Move the type behind the other types of its queue.
    if (items.size > 0) {
      this.#queues[index]!.delete(type);
      this.#queues[index]!.set(type, items);
    }
    this.#runsOfType.set(type, (this.#runsOfType.get(type) ?? 0) + 1);
    this.#runs += 1;
    this.#lastQueue = index;
    return item;
  }

  /** Ends a run. Returns whether to report its timeout. */
  end({ type }: Item, result: RunResult): boolean {
    this.#runs -= 1;
    const runs = this.#runsOfType.get(type)! - 1;
    if (runs > 0) this.#runsOfType.set(type, runs);
    else this.#runsOfType.delete(type);
    if (result === 'done') this.#slowTypes.delete(type);
    else this.#slowTypes.add(type);
    if (result === 'timeout') return this.#breaker.timedOut(type);
    this.#breaker.answered(type);
    return false;
  }

  #find(): { readonly index: number; readonly type: Item['type']; readonly items: Set<Item> } | undefined {
    if (this.#runs >= this.#maxRuns) return undefined;
    for (let step = 1; step <= queueNames.length; step++) {
      const index = (this.#lastQueue + step) % queueNames.length;
      for (const [type, items] of this.#queues[index]!) {
        if (this.#mayRun(type)) return { index, type, items };
      }
    }
    return undefined;
  }

  #mayRun(type: Item['type']): boolean {
    const runs = this.#runsOfType.get(type) ?? 0;
    if (runs === 0) return this.#breaker.waitMs(type) === 0;
    return runs < this.#maxRunsPerType && !this.#slowTypes.has(type);
  }
}
