type Cleanup = () => unknown;

/**
 * What a run has started and must stop, also when it fails or is interrupted. Cleanups run once, in reverse order,
 * all of them. Adding to a closed scope cleans up at once and throws, so work that
 * an interrupt has overtaken goes no further.
 */
export class Scope {
  #cleanups: Cleanup[] = [];
  #closing: Promise<void> | undefined;

  defer(cleanup: Cleanup): void {
    if (this.#closing) {
      void run(cleanup);
      throw new Error('The run is being stopped.');
    }
    this.#cleanups.push(cleanup);
  }

  close(): Promise<void> {
    this.#closing ??= this.#closeOnce();
    return this.#closing;
  }

  /** A scope inside of this one that ends with the work. */
  async nest<Result>(work: (inner: Scope) => Promise<Result>): Promise<Result> {
    const inner = new Scope();
    const closeInner = () => inner.close();
    this.defer(closeInner);
    try {
      return await work(inner);
    } finally {
      await inner.close();
      this.#cleanups = this.#cleanups.filter((cleanup) => cleanup !== closeInner);
    }
  }

  async #closeOnce(): Promise<void> {
    for (const cleanup of this.#cleanups.splice(0).toReversed()) await run(cleanup);
  }
}

// One cleanup that fails must not keep the others from running; what it left behind is said, not thrown, because
// the failure that led here matters more.
async function run(cleanup: Cleanup): Promise<void> {
  try {
    await cleanup();
  } catch (error) {
    process.stderr.write(`bench: a cleanup failed: ${String(error)}\n`);
  }
}
