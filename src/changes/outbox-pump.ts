import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import type { Queryable } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { every, Service, Wake, within } from '../lifecycle/index.ts';
import type { Bus } from './bus.ts';
import { changesOfMarks, type MarkedChanges } from './marked-changes.ts';
import { PumpProgress } from './pump-progress.ts';
import type { UnsettledTypes } from './unmarked-writers.ts';

export interface OutboxPumpOptions {
  readonly db: Queryable;
  readonly bus: Pick<Bus, 'publish'>;
  readonly events: Events;
  /** Whether any pair is watched through this process. If not, the process leaves the lease to others. */
  readonly isNeeded: () => boolean;
  /** Identifies this process as the holder of duties. */
  readonly holder?: string | undefined;
}

const readEveryMs = 100;
const tryLeaseEveryMs = 1_000;
const stopTimeoutMs = 2_000;

const read = { name: 'pgfresh.pump', text: 'select pgfresh_engine.pump_changes($1::uuid, $2::pg_snapshot) as answer' };
const settle = {
  name: 'pgfresh.settle',
  text: 'select pgfresh_engine.settle_changes($1::pg_snapshot, $2::pg_snapshot, $3::int[], $4::int[], $5::timestamptz[])',
};

/**
 * Publishes change marks from the outbox that their own transaction did not publish. A lease makes sure that one process
 * does this at a time; every process with viewers is ready to take over. Marks are deleted only after they were
 * published, so a pump that dies loses none: the next one reads everything that is left.
 */
export class OutboxPump extends Service {
  readonly name = 'pump';
  readonly #options: OutboxPumpOptions;
  readonly #holder: string;
  readonly #wake = new Wake();
  #loop: Promise<void> | undefined;
  /** Defined while this process holds the lease. */
  #progress: PumpProgress | undefined;

  constructor(options: OutboxPumpOptions) {
    super();
    this.#options = options;
    this.#holder = options.holder ?? randomUUID();
  }

  /** Tries for the lease now, because a data type was just watched. */
  wake(): void {
    this.#wake.wake();
  }

  /** Reads and publishes once. Returns whether this process holds the lease. */
  async run(): Promise<boolean> {
    const { db, bus, events } = this.#options;
    const startedAt = performance.now();
    const [row] = await db.query<{ answer: (MarkedChanges & UnsettledTypes) | null }>(read, [
      this.#holder,
      this.#progress?.since ?? null,
    ]);
    const answer = row!.answer;
    if (!answer) {
      this.#progress = undefined;
      return false;
    }
    const progress = (this.#progress ??= new PumpProgress(startedAt));
    const changes = changesOfMarks(answer.changes.filter(([, , , isNotified]) => !isNotified));
    if (changes.length > 0) {
      await bus.publish(changes);
      events.emit({ type: 'changes.published', types: changes.length, ms: performance.now() - startedAt });
    }
    progress.published(answer.snapshot, answer.changes.length > 0, performance.now());
    await this.#settle(progress, answer);
    return true;
  }

  protected async onStart(): Promise<void> {
    this.#loop = every(tryLeaseEveryMs, () => this.#runIfNeeded(), {
      signal: this.stopSignal,
      wake: this.#wake,
      now: true,
      failed: (error) => this.#failed(error),
    });
  }

  protected async onStop(): Promise<void> {
    // A database that does not answer must not keep the process from exiting.
    const ended = this.#loop?.then(() => this.#release());
    await within(stopTimeoutMs, ended);
  }

  /** Returns the pause before the next run. */
  async #runIfNeeded(): Promise<number> {
    if (this.#options.isNeeded()) return (await this.run()) ? readEveryMs : tryLeaseEveryMs;
    await this.#release();
    return tryLeaseEveryMs;
  }

  // Start over: marks that were read may not have been published.
  #failed(error: unknown): void {
    this.#progress = undefined;
    this.#options.events.emit({ type: 'gateway.failed', step: 'pump', problem: problemOf(error) });
  }

  async #settle(progress: PumpProgress, answer: UnsettledTypes): Promise<void> {
    // Written as marks, so that processes that only poll learn of them too.
    const changed = progress.unmarkedWriters.takeChanged(answer);
    const settled = progress.unmarkedWriters.takeSettled(answer);
    const expired = progress.takeExpired(performance.now());
    if (changed.length + settled.length === 0 && !expired) return;
    await this.#options.db.query(settle, [
      expired?.from ?? null,
      expired?.to ?? null,
      changed,
      settled.map(([type]) => type),
      settled.map(([, since]) => since),
    ]);
  }

  // The next holder need not wait for the lease to expire. If this fails, it waits.
  async #release(): Promise<void> {
    if (!this.#progress) return;
    this.#progress = undefined;
    await this.#options.db
      .query(`select pgfresh_engine.release_duty('pump', $1::uuid)`, [this.#holder])
      .catch(() => {});
  }
}
