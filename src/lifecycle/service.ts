/**
 * Everything that runs starts and stops by this one contract: both are idempotent and awaited,
 * stopping before or during the start is allowed, and a stopped service does not start again.
 */
export abstract class Service {
  abstract readonly name: string;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;
  readonly #stop = new AbortController();

  /** Aborted as soon as the stop is asked for; long work inside the service watches it. */
  protected get stopSignal(): AbortSignal {
    return this.#stop.signal;
  }

  protected abstract onStart(): Promise<void>;
  protected abstract onStop(): Promise<void>;

  start(): Promise<void> {
    if (this.#stop.signal.aborted)
      return Promise.reject(new Error(`${this.name} was stopped and does not start again`));
    this.#starting ??= this.onStart();
    return this.#starting;
  }

  stop(): Promise<void> {
    this.#stopping ??= this.#stopOnce();
    return this.#stopping;
  }

  /** What can still be done when there is no time to stop: it must not wait. */
  abandon(): void {}

  async #stopOnce(): Promise<void> {
    this.#stop.abort();
    if (!this.#starting) return;
    // A start that failed half-way may still hold something, so it is stopped like a good one.
    await this.#starting.catch(() => {});
    await this.onStop();
  }
}

/** Stops in reverse order of starting, all of them, and then reports the first failure. */
export async function stopAll(services: readonly Service[]): Promise<void> {
  const failures: unknown[] = [];
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
