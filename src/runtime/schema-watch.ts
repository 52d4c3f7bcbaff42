import { findReplacement, type Queryable, type SqlFiles } from '../database/index.ts';
import type { PgfreshError } from '../errors/index.ts';
import { pause, Service } from '../lifecycle/index.ts';

interface SchemaWatchOptions {
  readonly db: Queryable;
  /** The SQL files of this version. */
  readonly files: SqlFiles;
  /** Called once. */
  readonly onReplaced: (error: PgfreshError) => void;
  readonly intervalMs?: number;
}

/**
 * Detects an upgrade that removed functions which this process calls, so that it stops instead of failing statement by
 * statement. Other upgrades do not affect it.
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
      // Other parts report a database that does not answer.
      const error = await findReplacement(db, files).catch(() => undefined);
      if (error) return onReplaced(error);
    }
  }
}
