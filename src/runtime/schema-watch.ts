import { findReplacement, type Queryable, type SqlFiles } from '../database/index.ts';
import type { PgfreshError } from '../errors/index.ts';
import { pause, Service } from '../lifecycle/index.ts';

interface SchemaWatchOptions {
  readonly db: Queryable;
  /** What this process was started with. */
  readonly files: SqlFiles;
  /** Called once, with what to tell. */
  readonly onReplaced: (error: PgfreshError) => void;
  readonly intervalMs?: number;
}

/**
 * Notices that an upgrade has taken away what this process calls: from then on its statements would fail one by one. An
 * upgrade that takes nothing away leaves it alone.
 */
export class SchemaWatch extends Service {
  readonly name = 'schema watch';
  readonly #options: SchemaWatchOptions;
  #watching: Promise<void> | undefined;

  constructor(options: SchemaWatchOptions) {
    super();
    this.#options = options;
  }

  protected async onStart(): Promise<void> {
    this.#watching = this.#watch();
  }

  protected async onStop(): Promise<void> {
    await this.#watching;
  }

  async #watch(): Promise<void> {
    const { db, files, onReplaced, intervalMs = 5_000 } = this.#options;
    for (;;) {
      await pause(intervalMs, this.stopSignal);
      if (this.stopSignal.aborted) return;
      // A database that does not answer is told of by others.
      const error = await findReplacement(db, files).catch(() => undefined);
      if (error) return onReplaced(error);
    }
  }
}
