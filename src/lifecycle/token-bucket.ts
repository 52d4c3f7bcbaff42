/** A rate limiter: `size` tokens at once, and `perSecond` tokens come back. */
export class TokenBucket {
  readonly #perMs: number;
  readonly #size: number;
  #tokens: number;
  #filledAt: number;

  constructor(perSecond: number, size: number, now = performance.now()) {
    this.#perMs = perSecond / 1_000;
    this.#size = size;
    this.#tokens = size;
    this.#filledAt = now;
  }

  /** Takes a token, if there is one. */
  take(now = performance.now()): boolean {
    this.#fill(now);
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }

  /** Returns a token that was taken and not used. */
  putBack(): void {
    this.#tokens = Math.min(this.#size, this.#tokens + 1);
  }

  isFull(now = performance.now()): boolean {
    this.#fill(now);
    return this.#tokens >= this.#size;
  }

  #fill(now: number): void {
    this.#tokens = Math.min(this.#size, this.#tokens + (now - this.#filledAt) * this.#perMs);
    this.#filledAt = now;
  }
}
