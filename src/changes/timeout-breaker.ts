/** So many timeouts in a row, and a data type is left to probes. */
const timeoutsToHold = 2;
const probeEveryMs = 1_000;
/** One of so many probes may take as long as any statement, so that a type that is only slow comes back. */
const longProbeEvery = 10;
/** While a type is held, one of so many timeouts is noted in the database, besides the first two. */
const noteEvery = 30;

/**
 * Data types that do not answer in time. After its first timeout a type is asked once more; after the second it is held:
 * only one probe per second asks it, until one is answered.
 */
export class Holds<Type> {
  readonly #timeouts = new Map<Type, { readonly count: number; readonly at: number }>();

  isHeld(type: Type): boolean {
    return this.#count(type) >= timeoutsToHold;
  }

  /** Whether it may be asked for a moment only. */
  isShort(type: Type): boolean {
    return this.isHeld(type) && this.#count(type) % longProbeEvery !== 0;
  }

  /** How long it is until the type may be asked; 0 if it may be now. */
  pauseMs(type: Type, now = performance.now()): number {
    return this.isHeld(type) ? Math.max(0, this.#timeouts.get(type)!.at + probeEveryMs - now) : 0;
  }

  answered(type: Type): void {
    this.#timeouts.delete(type);
  }

  /** Returns whether that is to be noted: not what may have been a moment's load, and not each probe. */
  timedOut(type: Type, now = performance.now()): boolean {
    const count = this.#count(type) + 1;
    this.#timeouts.set(type, { count, at: now });
    return count === timeoutsToHold || count === timeoutsToHold + 1 || count % noteEvery === 0;
  }

  #count(type: Type): number {
    return this.#timeouts.get(type)?.count ?? 0;
  }
}
