import { pause } from './pause.ts';

/** Pauses between tries, each twice as long as the one before. */
export class Backoff {
  readonly #firstMs: number;
  readonly #longestMs: number;
  #ms: number;

  constructor(firstMs: number, longestMs: number) {
    this.#firstMs = firstMs;
    this.#longestMs = longestMs;
    this.#ms = firstMs;
  }

  /** Waits before the next try, or until the signal is aborted. */
  async pause(signal: AbortSignal): Promise<void> {
    const ms = this.#ms;
    this.#ms = Math.min(ms * 2, this.#longestMs);
    await pause(ms, signal);
  }

  /** After a try that went well. */
  reset(): void {
    this.#ms = this.#firstMs;
  }
}
