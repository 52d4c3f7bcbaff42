import { performance } from 'node:perf_hooks';
import type { Queryable } from '../database/index.ts';
import { every, Service, Wake } from '../lifecycle/index.ts';

/** How a process registers. The column `id` is the number of the incarnation that begins. */
export interface Registration {
  readonly text: string;
  readonly values: readonly unknown[];
}

/** The column `answer` is a LeaseAnswer. */
const renew = 'select pgfresh_engine.heartbeat_process($1::bigint, $2::uuid[]) as answer';
const retire = 'select pgfresh_engine.retire_process($1::bigint)';

export interface LeaseAnswer {
  readonly alive: boolean;
}

interface RenewalOptions {
  readonly renewEveryMs?: number;
  readonly leaseMs?: number;
  readonly onAnswer?: (answer: LeaseAnswer) => void;
}

/** A little less than the lease of the database: whoever may take over must find that we have stopped. */
const trustedMs = 11_500;

/** The life of a process as the database sees it: a number, a lease, and the requests whose work it holds. */
export class Renewal extends Service {
  readonly name = 'lease';
  readonly #db: Queryable;
  readonly #registration: Registration;
  readonly #options: RenewalOptions;
  readonly #held = new Map<string, number>();
  readonly #lost = new AbortController();
  readonly #wake = new Wake();
  #id: number | undefined;
  #renewing: Promise<void> | undefined;
  #deadline: NodeJS.Timeout | undefined;

  constructor(db: Queryable, registration: Registration, options: RenewalOptions = {}) {
    super();
    this.#db = db;
    this.#registration = registration;
    this.#options = options;
  }

  get id(): number {
    if (this.#id === undefined) throw new Error('the lease has not started');
    return this.#id;
  }

  /** Aborted when the lease is lost: what the process holds may belong to others then. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** Someone else was told that it is lost. */
  lose(): void {
    clearTimeout(this.#deadline);
    this.#lost.abort();
  }

  /** Remembers a request until so many pieces of work were reported as ended. */
  hold(request: string, pieces: number): void {
    if (pieces > 0) this.#held.set(request, pieces);
  }

  ended(request: string, pieces: number): void {
    const left = (this.#held.get(request) ?? 0) - pieces;
    if (left > 0) this.#held.set(request, left);
    else this.#held.delete(request);
  }

  /** The requests that have work left. */
  get held(): string[] {
    return [...this.#held.keys()];
  }

  /** Has it renewed now. */
  hurry(): void {
    this.#wake.wake();
  }

  /** Renews the lease. A renewal that fails is left to the next one; the lease outlives two of them. */
  async renew(): Promise<void> {
    const from = performance.now();
    const rows = await this.#db.query<{ answer: LeaseAnswer }>(renew, [this.id, this.held]).catch(() => []);
    const answer = rows[0]?.answer;
    if (!answer || this.lost.aborted) return;
    if (!answer.alive) return this.lose();
    this.#trustFrom(from);
    this.#options.onAnswer?.(answer);
  }

  protected async onStart(): Promise<void> {
    const { text, values } = this.#registration;
    const from = performance.now();
    const [row] = await this.#db.query<{ id: number }>(text, values);
    this.#id = row!.id;
    this.#trustFrom(from);
    const { renewEveryMs = 2_500 } = this.#options;
    this.#renewing = every(renewEveryMs, () => this.renew(), {
      signal: AbortSignal.any([this.stopSignal, this.lost]),
      wake: this.#wake,
      // If none succeeds, the lease is lost at its deadline.
      failed: () => {},
    });
  }

  protected async onStop(): Promise<void> {
    await this.#renewing;
    clearTimeout(this.#deadline);
    // Of a lost one, what is being ended this moment is better ended than put back.
    if (this.#id === undefined || this.lost.aborted) return;
    await this.#db.query(retire, [this.#id]);
  }

  /** The database has counted from then at the earliest. If it is silent, the end of the lease is seen here too. */
  #trustFrom(from: number): void {
    const { leaseMs = trustedMs } = this.#options;
    clearTimeout(this.#deadline);
    this.#deadline = setTimeout(() => this.lose(), from + leaseMs - performance.now());
  }
}
