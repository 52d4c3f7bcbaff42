/** The two halves of a batch that failed as a whole. Each is tried by itself, until it is known which item is at fault. */
export function halves<Item>(batch: readonly Item[]): [Item[], Item[]] {
  const middle = Math.ceil(batch.length / 2);
  return [batch.slice(0, middle), batch.slice(middle)];
}

/**
 * How many items to take at once, where each try takes its batch anew: fewer after a failure, down to the one item that is
 * at fault, and twice as many after each success.
 */
export class BatchSize {
  readonly #most: number;
  #size: number;

  constructor(most: number) {
    this.#most = most;
    this.#size = most;
  }

  get size(): number {
    return this.#size;
  }

  get isFull(): boolean {
    return this.#size === this.#most;
  }

  grow(): void {
    this.#size = Math.min(this.#most, this.#size * 2);
  }

  /** After a batch of `tried` items has failed. A larger divisor needs fewer tries, where each of them costs a timeout. */
  shrink(tried: number, divisor = 2): void {
    this.#size = Math.max(1, Math.floor(tried / divisor));
  }
}
