import { performance } from 'node:perf_hooks';

/**
 * The contract of everything that starts and stops. Both are idempotent and awaited; a stop before or during the start
 * is allowed, and a stopped service does not start again.
 */
export abstract class Service {
  abstract readonly name: string;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;
  readonly #stop = new AbortController();
  #requestedAt: number | undefined;

  /** Aborted as soon as the stop is requested: no new work begins, and long work ends. */
  protected get stopSignal(): AbortSignal {
    return this.#stop.signal;
  }

  /** Milliseconds since the stop was requested, from which the drain timeout counts. */
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

  /** No new work begins from here on; running work continues until the stop. */
  requestStop(): void {
    this.#request();
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stopOnce();
    return this.#stopping;
  }

  /** Last resort when there is no time to stop. Must not wait. */
  abandon(): void {}

  #request(): void {
    this.#requestedAt ??= performance.now();
    this.#stop.abort();
  }

  async #stopOnce(): Promise<void> {
    this.#request();
    if (!this.#starting) return;
    // A failed start may have left something running, so it is stopped too.
    await this.#starting.catch(() => {});
    await this.onStop();
  }
}

/**
 * Stops all services in reverse order, and then reports the first failure. The stop is requested of all first, so that
 * none begins new work while another finishes its own.
 */
export async function stopAll(services: readonly Service[]): Promise<void> {
  const failures: unknown[] = [];
  for (const service of services) service.requestStop();
  for (const service of services.toReversed()) {
    await service.stop().catch((error: unknown) => failures.push(error));
  }
  if (failures.length > 0) throw failures[0];
}

/** Awaits the work, then stops, even if the work fails. If both fail, throws the error of the work. */
export async function thenStop<T>(work: Promise<T>, stop: () => Promise<void>): Promise<T> {
  const result = await work.catch(async (error: unknown) => {
    await stop().catch(() => {});
    throw error;
  });
  await stop();
  return result;
}
