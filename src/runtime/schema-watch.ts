import { findReplacement, type Queryable, type SqlFiles } from '../database/index.ts';
import type { PgfreshError } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { every, Service, Wake } from '../lifecycle/index.ts';

interface SchemaWatchOptions {
  readonly db: Queryable;
  readonly events: Events;
  /** The SQL files of this version. */
  readonly files: SqlFiles;
  /** Called once. */
  readonly onReplaced: (error: PgfreshError) => void;
  readonly intervalMs?: number;
}

/**
 * Detects an upgrade that removed functions which this process calls, or that waits for it to stop, so that it stops
 * instead of failing statement by statement. Other upgrades do not affect it.
 */
export class SchemaWatch extends Service {
  readonly name = 'schema watch';
  readonly #options: SchemaWatchOptions;
  readonly #wake = new Wake();
  readonly #found = new AbortController();
  #watching: Promise<void> | undefined;
  #unsubscribe: (() => void) | undefined;

  constructor(options: SchemaWatchOptions) {
    super();
    this.#options = options;
  }

  protected async onStart(): Promise<void> {
    const { events, intervalMs = 5_000 } = this.#options;
    // Heartbeats are more frequent than this.
    this.#unsubscribe = events.on('process.outdated', () => this.#wake.wake());
    this.#watching = every(intervalMs, () => this.#look(), {
      signal: AbortSignal.any([this.stopSignal, this.#found.signal]),
      wake: this.#wake,
      // Other parts report a database that does not answer.
      failed: () => {},
    });
  }

  protected async onStop(): Promise<void> {
    this.#unsubscribe?.();
    await this.#watching;
  }

  async #look(): Promise<void> {
    const { db, files, onReplaced } = this.#options;
    const error = await findReplacement(db, files);
    if (!error) return;
    this.#found.abort();
    onReplaced(error);
  }
}
