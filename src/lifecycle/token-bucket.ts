/** A rate that may be exceeded for a moment: so much at once, and then as much as comes back. */
export class Bucket {
  readonly #perMs: number;
  readonly #size: number;
  #left: number;
  #at: number;

  constructor(perSecond: number, size: number, now = performance.now()) {
    this.#perMs = perSecond / 1_000;
    this.#size = size;
    this.#left = size;
    this.#at = now;
  }

  /** Whether there is something left, which is taken then. */
  take(now = performance.now()): boolean {
    this.#fill(now);
    if (this.#left < 1) return false;
    this.#left -= 1;
    return true;
  }

  /** Takes back what was taken and not used. */
  give(): void {
    this.#left = Math.min(this.#size, this.#left + 1);
  }

  isFull(now = performance.now()): boolean {
    this.#fill(now);
    return this.#left >= this.#size;
  }

  #fill(now: number): void {
    this.#left = Math.min(this.#size, this.#left + (now - this.#at) * this.#perMs);
    this.#at = now;
  }
}
