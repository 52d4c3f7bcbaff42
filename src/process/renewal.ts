import { performance } from 'node:perf_hooks';
import type { Queryable } from '../database/index.ts';
import { every, Service, Wake } from '../lifecycle/index.ts';

/** The statement that registers a process. Its column `id` is the number of the process. */
export interface Registration {
  readonly text: string;
  readonly values: readonly unknown[];
}

/** The column `answer` is a LeaseAnswer. */
const renew = 'select pgfresh_engine.heartbeat_process($1::bigint, $2::uuid[]) as answer';
const retire = 'select pgfresh_engine.retire_process($1::bigint)';

export interface LeaseAnswer {
  readonly alive: boolean;
  /** The process is too old for the database: it must end what it holds and stop. */
  readonly stop?: boolean;
}

interface RenewalOptions {
  readonly renewEveryMs?: number;
  readonly leaseMs?: number;
  readonly onAnswer?: (answer: LeaseAnswer) => void;
}

/** Slightly less than the database's lease, so that this process has stopped before another may take over. */
const defaultLeaseMs = 11_500;

/** Registers a process and renews its lease, with the requests whose work it holds. */
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

  /** Aborted when the lease is lost: the work of the process may belong to others then. */
  get lost(): AbortSignal {
    return this.#lost.signal;
  }

  /** The lease is lost. */
  lose(): void {
    clearTimeout(this.#deadline);
    this.#lost.abort();
  }

  /** Holds a request until this many pieces of work have ended. */
  hold(request: string, pieces: number): void {
    if (pieces > 0) this.#held.set(request, pieces);
  }

  ended(request: string, pieces: number): void {
    const left = (this.#held.get(request) ?? 0) - pieces;
    if (left > 0) this.#held.set(request, left);
    else this.#held.delete(request);
  }

  /** The requests with unfinished work. */
  get held(): string[] {
    return [...this.#held.keys()];
  }

  /** Renews the lease now. */
  hurry(): void {
    this.#wake.wake();
  }

  /** Renews the lease. A failed renewal is not repeated; the lease outlives two of them. */
  async renew(): Promise<void> {
    const from = performance.now();
    const rows = await this.#db.query<{ answer: LeaseAnswer }>(renew, [this.id, this.held]).catch(() => []);
    const answer = rows[0]?.answer;
    if (!answer || this.lost.aborted) return;
    if (!answer.alive) return this.lose();
    this.#restartDeadline(from);
    this.#options.onAnswer?.(answer);
  }

  protected async onStart(): Promise<void> {
    const { text, values } = this.#registration;
    const from = performance.now();
    const [row] = await this.#db.query<{ id: number }>(text, values);
    this.#id = row!.id;
    this.#restartDeadline(from);
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
    // After a loss, work that is just ending should end and not be put back.
    if (this.#id === undefined || this.lost.aborted) return;
    await this.#db.query(retire, [this.#id]);
  }

  /** Restarts the local deadline from the moment before the statement, as the database counts from later. */
  #restartDeadline(from: number): void {
    const { leaseMs = defaultLeaseMs } = this.#options;
    clearTimeout(this.#deadline);
    this.#deadline = setTimeout(() => this.lose(), from + leaseMs - performance.now());
  }
}
