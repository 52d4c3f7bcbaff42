type Timer = ReturnType<typeof setTimeout>;

/** setTimeout fires at once if its delay is longer. */
export const longestTimerMs = 2 ** 31 - 1;

/** Named timers. Starting one again restarts it. */
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
