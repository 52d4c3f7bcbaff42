/** After this many timeouts in a row, a data type is unresponsive. */
const timeoutsToOpen = 2;
const probeEveryMs = 1_000;
/** Every tenth probe gets the full time limit, so that a type that is merely slow recovers. */
const longProbeEvery = 10;
/** While a type is unresponsive, every thirtieth timeout is reported, besides the first two. */
const reportEvery = 30;

/**
 * A circuit breaker for data types whose tables or functions do not answer in time. After two timeouts in a row a type
 * is unresponsive: it gets only one probe per second, until a probe succeeds.
 */
export class TimeoutBreaker<Type> {
  readonly #timeouts = new Map<Type, { readonly count: number; readonly at: number }>();

  isUnresponsive(type: Type): boolean {
    return this.#count(type) >= timeoutsToOpen;
  }

  /** Whether the next statement is a probe that gets only a short time limit. */
  isShortProbe(type: Type): boolean {
    return this.isUnresponsive(type) && this.#count(type) % longProbeEvery !== 0;
  }

  /** Milliseconds until the type may be queried; 0 if it may be now. */
  waitMs(type: Type, now = performance.now()): number {
    return this.isUnresponsive(type) ? Math.max(0, this.#timeouts.get(type)!.at + probeEveryMs - now) : 0;
  }

  answered(type: Type): void {
    this.#timeouts.delete(type);
  }

  /** Returns whether to report the timeout: not the first, which may be a moment of load, and not every probe. */
  timedOut(type: Type, now = performance.now()): boolean {
    const count = this.#count(type) + 1;
    this.#timeouts.set(type, { count, at: now });
    return count === timeoutsToOpen || count === timeoutsToOpen + 1 || count % reportEvery === 0;
  }

  #count(type: Type): number {
    return this.#timeouts.get(type)?.count ?? 0;
  }
}
