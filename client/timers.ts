type Timer = ReturnType<typeof setTimeout>;

/** One that is longer would end at once. */
export const longestTimerMs = 2 ** 31 - 1;

/** Timers by their names. One that is started again begins anew. */
export class Timers<Name extends string> {
  readonly #running = new Map<Name, Timer>();

  has(name: Name): boolean {
    return this.#running.has(name);
  }

  start(name: Name, ms: number, act: () => unknown): void {
    this.stop(name);
    const timer = setTimeout(
      () => {
        this.#running.delete(name);
        act();
      },
      Math.min(ms, longestTimerMs),
    );
    this.#running.set(name, timer);
  }

  /** Stops one, or all. */
  stop(name?: Name): void {
    for (const [each, timer] of this.#running) {
      if (name !== undefined && name !== each) continue;
      clearTimeout(timer);
      this.#running.delete(each);
    }
  }
}
