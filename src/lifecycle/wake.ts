/** Lets one part wait until another wakes it. A wake while no part waits is remembered. */
export class Wake {
  #isWoken = false;
  #end: (() => void) | undefined;

  wake(): void {
    this.#isWoken = true;
    this.#end?.();
  }

  /** Resolves when woken, when the signal is aborted, or after the given time. */
  async wait(ms: number, signal?: AbortSignal): Promise<void> {
    if (!this.#isWoken && !signal?.aborted) {
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
    this.#isWoken = false;
  }
}
