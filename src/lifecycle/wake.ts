/** One part waits for work, and another says that there is some. A word that comes while no one waits is not lost. */
export class Wake {
  #said = false;
  #end: (() => void) | undefined;

  wake(): void {
    this.#said = true;
    this.#end?.();
  }

  /** Settles when woken or when the signal is aborted, and after so many milliseconds at the latest. */
  async wait(ms: number, signal?: AbortSignal): Promise<void> {
    if (!this.#said && !signal?.aborted) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const timer = setTimeout(resolve, ms);
      const end = (): void => resolve();
      this.#end = end;
      signal?.addEventListener('abort', end, { once: true });
      await promise;
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      this.#end = undefined;
    }
    this.#said = false;
  }
}
