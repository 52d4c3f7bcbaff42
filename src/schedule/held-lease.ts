import { performance } from 'node:perf_hooks';
import { durationText } from '../config/index.ts';
import { PgfreshError } from '../errors/index.ts';
import { rowsFrom, type SqlClient } from './sql-client.ts';

/** What the work gets. */
export interface Leased {
  /** Aborted when the lease is lost, the run takes too long or the process ends. */
  readonly signal: AbortSignal;
  readonly token: number;
  /** To be called last in a transaction that writes: it fails if the lease is lost, and no other process can take it before the commit. */
  readonly fence: (client: SqlClient) => Promise<void>;
}

interface HeldOptions {
  readonly db: SqlClient;
  readonly name: string;
  readonly token: number;
  readonly leaseMs: number;
  readonly maxRunMs: number;
  /** When it was asked for, on the clock of `performance.now()`: the database has counted from then at the earliest. */
  readonly heldFrom: number;
  readonly signal: AbortSignal | undefined;
}

/** A lease that was acquired, kept alive while some work runs. */
export class HeldLease {
  readonly #options: HeldOptions;
  readonly #abort = new AbortController();
  readonly #lost = Promise.withResolvers<never>();
  #broken: PgfreshError | undefined;
  #ended = false;
  #renewal: NodeJS.Timeout | undefined;
  #deadline: NodeJS.Timeout | undefined;

  constructor(options: HeldOptions) {
    this.#options = options;
    // Callers need not handle it.
    this.#lost.promise.catch(() => {});
  }

  /** Runs the work. If it does not stop although the lease is lost, it is left alone: it cannot be waited for. */
  async run<T>(work: (leased: Leased) => Promise<T>): Promise<T> {
    const { name, token, maxRunMs, heldFrom, signal } = this.#options;
    const stop = (): void => this.#abort.abort(signal!.reason);
    signal?.addEventListener('abort', stop);
    if (signal?.aborted) stop();
    const limit = setTimeout(() => this.#cut(), maxRunMs);
    this.#holdUntil(heldFrom);
    const fence = async (client: SqlClient): Promise<void> => {
      await rowsFrom(client, 'select pgfresh.fence_refresh_lock($1::text, $2::bigint)', [name, token]);
    };
    try {
      const running = (async () => work({ signal: this.#abort.signal, token, fence }))();
      const result = await Promise.race([running, this.#lost.promise]);
      if (this.#broken) throw this.#broken;
      return result;
    } catch (error) {
      // Work that was aborted fails by its own words; why it was is more to the point.
      throw this.#broken ?? error;
    } finally {
      signal?.removeEventListener('abort', stop);
      clearTimeout(limit);
      clearTimeout(this.#renewal);
      clearTimeout(this.#deadline);
      this.#ended = true;
    }
  }

  /** Held for one lease from then on. The database may be silent, so the end is watched here too, and the next renewal is due after a third. */
  #holdUntil(from: number): void {
    const { leaseMs } = this.#options;
    const left = from + leaseMs - performance.now();
    clearTimeout(this.#deadline);
    this.#deadline = setTimeout(() => this.#lose('it could not be renewed in time'), left);
    this.#renewLater(from);
  }

  #renewLater(from: number): void {
    const { leaseMs } = this.#options;
    this.#renewal = setTimeout(() => void this.#renew(), from + leaseMs / 3 - performance.now());
  }

  async #renew(): Promise<void> {
    const { db, name, token, leaseMs } = this.#options;
    const from = performance.now();
    const renew =
      'select reason from pgfresh.renew_refresh_lock($1::text, $2::bigint, make_interval(secs => $3::float8))';
    const rows = await rowsFrom<{ reason: 'renewed' | 'lost' }>(db, renew, [name, token, leaseMs / 1000]).catch(
      () => [],
    );
    if (this.#broken || this.#ended) return;
    if (rows[0]?.reason === 'renewed') this.#holdUntil(from);
    else if (rows[0]?.reason === 'lost') this.#lose('another process may have it');
    // One that failed is tried again; the lease outlives two of them.
    else this.#renewLater(from);
  }

  /** From here on nothing is renewed, so that the lease ends also under a work that does not stop. */
  #cut(): void {
    const { name, maxRunMs } = this.#options;
    this.#break(new PgfreshError('PGF_RUN_TOO_LONG', { name, limit: durationText(maxRunMs) }));
  }

  #lose(why: string): void {
    const { name, token } = this.#options;
    this.#break(
      new PgfreshError('PGF_LOCK_LOST', { problem: `the lease of "${name}" with token ${token} is lost: ${why}` }),
    );
    this.#lost.reject(this.#broken);
  }

  #break(error: PgfreshError): void {
    clearTimeout(this.#renewal);
    this.#broken ??= error;
    this.#abort.abort(this.#broken);
  }
}
