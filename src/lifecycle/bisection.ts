/** Splits a failed batch in two. Each half is tried separately, until the faulty item is found. */
export function halves<Item>(batch: readonly Item[]): [Item[], Item[]] {
  const middle = Math.ceil(batch.length / 2);
  return [batch.slice(0, middle), batch.slice(middle)];
}

/**
 * An adaptive batch size: smaller after a failure, down to the one faulty item, and twice as large after each success.
 */
export class BatchSize {
  readonly #max: number;
  #size: number;

  constructor(max: number) {
    this.#max = max;
    this.#size = max;
  }

  get size(): number {
    return this.#size;
  }

  get isFull(): boolean {
    return this.#size === this.#max;
  }

  grow(): void {
    this.#size = Math.min(this.#max, this.#size * 2);
  }

  /** After a failed batch of `tried` items. A larger divisor needs fewer attempts, for failures that cost a timeout. */
  shrink(tried: number, divisor = 2): void {
    this.#size = Math.max(1, Math.floor(tried / divisor));
  }
}
