const windowMs = 60_000;

export interface Pass {
  readonly accepted: boolean;
  readonly remaining: number;
  /** Until the oldest call that counts leaves the window. */
  readonly resetMs: number;
}

/** So many calls in any minute and no more. It remembers each that it let through, so no edge of a window lets twice as many pass. */
export class Limiter {
  readonly #limit: number;
  readonly #taken = new Map<string, number[]>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  take(key: string, now: number): Pass {
    const taken = (this.#taken.get(key) ?? []).filter((at) => at > now - windowMs);
    this.#taken.set(key, taken);
    const accepted = taken.length < this.#limit;
    if (accepted) taken.push(now);
    return {
      accepted,
      remaining: this.#limit - taken.length,
      resetMs: taken.length > 0 ? taken[0]! + windowMs - now : 0,
    };
  }
}
