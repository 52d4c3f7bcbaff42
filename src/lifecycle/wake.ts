import { setTimeout as wait } from 'node:timers/promises';

/** Somebody waits for work, and somebody else says that there is some. A word that comes while nobody waits is not lost. */
export class Wake {
  #said = false;
  #waiting: AbortController | undefined;

  wake(): void {
    this.#said = true;
    this.#waiting?.abort();
  }

  /** Settles when woken, or after so many milliseconds at the latest. */
  async wait(ms: number): Promise<void> {
    if (!this.#said) {
      this.#waiting = new AbortController();
      await wait(ms, undefined, { signal: this.#waiting.signal }).catch(() => {});
      this.#waiting = undefined;
    }
    this.#said = false;
  }
}
