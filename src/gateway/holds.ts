/** So many timeouts in a row, and a data type is left to probes. */
const timeoutsToHold = 2;
const probeEveryMs = 1_000;

/**
 * Data types that do not answer in time. After its first timeout a type is asked once more; after the second it is held:
 * only one probe per second asks it, until one is answered.
 */
export class Holds<Type> {
  readonly #timeouts = new Map<Type, { readonly count: number; readonly at: number }>();

  isHeld(type: Type): boolean {
    return (this.#timeouts.get(type)?.count ?? 0) >= timeoutsToHold;
  }

  /** How long it is until the type may be asked; 0 if it may be now. */
  pauseMs(type: Type, now = performance.now()): number {
    const timeouts = this.#timeouts.get(type);
    return timeouts && timeouts.count >= timeoutsToHold ? Math.max(0, timeouts.at + probeEveryMs - now) : 0;
  }

  answered(type: Type): void {
    this.#timeouts.delete(type);
  }

  timedOut(type: Type, now = performance.now()): void {
    this.#timeouts.set(type, { count: (this.#timeouts.get(type)?.count ?? 0) + 1, at: now });
  }
}
