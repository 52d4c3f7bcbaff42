import { pause } from './pause.ts';

/** Exponential backoff: pauses between attempts, each twice as long as the last. */
export class Backoff {
  readonly #firstMs: number;
  readonly #maxMs: number;
  #ms: number;

  constructor(firstMs: number, maxMs: number) {
    this.#firstMs = firstMs;
    this.#maxMs = maxMs;
    this.#ms = firstMs;
  }

  /** Waits before the next attempt, or until the signal is aborted. */
  async pause(signal: AbortSignal): Promise<void> {
    const ms = this.#ms;
    this.#ms = Math.min(ms * 2, this.#maxMs);
    await pause(ms, signal);
  }

  /** Call after a successful attempt. */
  reset(): void {
    this.#ms = this.#firstMs;
  }
}
