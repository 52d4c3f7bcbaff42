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
    for (const each of name === undefined ? this.#running.keys() : [name]) {
      clearTimeout(this.#running.get(each));
      this.#running.delete(each);
    }
  }
}
