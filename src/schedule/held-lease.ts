import { performance } from 'node:perf_hooks';
import { durationText } from '../config/index.ts';
import { PgfreshError } from '../errors/index.ts';
import { rowsFrom, type SqlClient } from './sql-client.ts';

/** Passed to the work. */
export interface Leased {
  /** Aborted when the lease is lost, the run takes too long or the process ends. */
  readonly signal: AbortSignal;
  readonly token: number;
  /** Call last in a writing transaction: fails if the lease is lost, and locks out other holders until the commit. */
  readonly fence: (client: SqlClient) => Promise<void>;
}

interface HeldOptions {
  readonly db: SqlClient;
  readonly name: string;
  readonly token: number;
  readonly leaseMs: number;
  readonly maxRunMs: number;
  /** When it was requested, by `performance.now()`. The database counts from then at the earliest. */
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
    // Prevents an unhandled rejection: callers need not handle it.
    this.#lost.promise.catch(() => {});
  }

  /** Runs the work. Work that does not stop after the lease is lost is abandoned. */
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
      // Aborted work throws an error of its own; the reason for the abort says more.
      throw this.#broken ?? error;
    } finally {
      signal?.removeEventListener('abort', stop);
      clearTimeout(limit);
      clearTimeout(this.#renewal);
      clearTimeout(this.#deadline);
      this.#ended = true;
    }
  }

  /** Extends the lease from then. The database may not respond, so expiry is timed here too. Renews after a third. */
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
    // Failed renewals are retried; the lease outlives two of them.
    else this.#renewLater(from);
  }

  /** Stops renewing, so that the lease expires even if the work does not stop. */
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
