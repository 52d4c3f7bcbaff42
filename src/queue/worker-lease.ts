import { setTimeout as wait } from 'node:timers/promises';
import type { Queryable } from '../database/index.ts';
import { Service } from '../lifecycle/index.ts';

/** The life of a worker process as the queue sees it: a number, a lease, and the claims that it knows of. */
export class WorkerLease extends Service {
  readonly name = 'worker lease';
  readonly #db: Queryable;
  readonly #workerName: string;
  readonly #renewEveryMs: number;
  readonly #known = new Map<string, number>();
  readonly #lost = new AbortController();
  #id: number | undefined;
  #renewing: Promise<void> | undefined;

  constructor(db: Queryable, workerName: string, renewEveryMs = 5_000) {
    super();
    this.#db = db;
    this.#workerName = workerName;
    this.#renewEveryMs = renewEveryMs;
  }

  get id(): number {
    if (this.#id === undefined) throw new Error('the worker lease has not started');
    return this.#id;
  }

  /** Aborted when the lease is lost: what the worker holds belongs to others then. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Somebody else was told that it is lost. */
  lose(): void {
    this.#lost.abort();
  }

  /** Remembers a claim until all of its jobs were reported as ended. */
  hold({ request, jobs }: { readonly request: string; readonly jobs: { readonly length: number } }): void {
    if (jobs.length > 0) this.#known.set(request, jobs.length);
  }

  ended(request: string, jobs: number): void {
    const left = (this.#known.get(request) ?? 0) - jobs;
    if (left > 0) this.#known.set(request, left);
    else this.#known.delete(request);
  }

  /** The claims that have jobs left, by their names. */
  get known(): string[] {
    return [...this.#known.keys()];
  }

  /** Renews the lease now. A renewal that fails is left to the next one; the lease outlives two of them. */
  async renew(): Promise<void> {
    const beat = 'select pgfresh.heartbeat_worker($1::bigint, $2::uuid[]) as alive';
    const rows = await this.#db.query<{ alive: boolean }>(beat, [this.id, this.known]).catch(() => []);
    if (rows[0]?.alive === false) this.#lost.abort();
  }

  protected async onStart(): Promise<void> {
    const register = 'select pgfresh.register_worker($1::text) as id';
    const [row] = await this.#db.query<{ id: number }>(register, [this.#workerName]);
    this.#id = row!.id;
    this.#renewing = this.#renewUntilStopped();
  }

  protected async onStop(): Promise<void> {
    await this.#renewing;
    // Of a lost one, what is being ended this moment is better ended than put back.
    if (this.#id === undefined || this.lost.aborted) return;
    await this.#db.query('select pgfresh.retire_worker($1::bigint)', [this.#id]);
  }

  async #renewUntilStopped(): Promise<void> {
    while (!this.stopSignal.aborted && !this.lost.aborted) {
      await wait(this.#renewEveryMs, undefined, { signal: this.stopSignal }).catch(() => {});
      if (!this.stopSignal.aborted) await this.renew();
    }
  }
}
