import { performance } from 'node:perf_hooks';

/**
 * Everything that runs starts and stops by this one contract: both are idempotent and awaited,
 * stopping before or during the start is allowed, and a stopped service does not start again.
 */
export abstract class Service {
  abstract readonly name: string;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;
  readonly #stop = new AbortController();
  #requestedAt: number | undefined;

  /** Aborted as soon as the stop is requested: nothing new begins, and long work ends. */
  protected get stopSignal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Milliseconds since the stop was requested; the time for draining counts from then. */
  protected get stoppingForMs(): number {
    return this.#requestedAt === undefined ? 0 : performance.now() - this.#requestedAt;
  }

  protected abstract onStart(): Promise<void>;
  protected abstract onStop(): Promise<void>;

  start(): Promise<void> {
    if (this.#stop.signal.aborted)
      return Promise.reject(new Error(`${this.name} was stopped and does not start again`));
    this.#starting ??= this.onStart();
    return this.#starting;
  }

  /** Nothing new begins from here on; what is under way goes on until the stop. */
  requestStop(): void {
    this.#request();
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stopOnce();
    return this.#stopping;
  }

  /** What can still be done when there is no time to stop: it must not wait. */
  abandon(): void {}

  #request(): void {
    this.#requestedAt ??= performance.now();
    this.#stop.abort();
  }

  async #stopOnce(): Promise<void> {
    this.#request();
    if (!this.#starting) return;
    // A start that failed half-way may still hold something, so it is stopped like a good one.
    await this.#starting.catch(() => {});
    await this.onStop();
  }
}

/**
 * Stops in reverse order of starting, all of them, and then reports the first failure. All are told first: one that
 * waits for its last work must not leave the others to begin more.
 */
export async function stopAll(services: readonly Service[]): Promise<void> {
  const failures: unknown[] = [];
  for (const service of services) service.requestStop();
  for (const service of services.toReversed()) {
    await service.stop().catch((error: unknown) => failures.push(error));
  }
  if (failures.length > 0) throw failures[0];
}

/** Does the work, then the stop, whatever came of the work. If both fail, the work's failure is the one that is told. */
export async function thenStop<T>(work: Promise<T>, stop: () => Promise<void>): Promise<T> {
  const result = await work.catch(async (error: unknown) => {
    await stop().catch(() => {});
    throw error;
  });
  await stop();
  return result;
}
