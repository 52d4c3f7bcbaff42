import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import type { Queryable } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { every, Service, Wake, within } from '../lifecycle/index.ts';
import type { Bus } from './bus.ts';
import { asChanges, type MarkedChanges } from './marked-changes.ts';
import { PumpDuty } from './pump-progress.ts';
import type { Unsettled } from './unmarked-writers.ts';

export interface PumpOptions {
  readonly db: Queryable;
  readonly bus: Pick<Bus, 'publish'>;
  readonly events: Events;
  /** Whether anybody watches through this process. While nobody does, the duty is left to others. */
  readonly isWanted: () => boolean;
}

const readEveryMs = 100;
const askEveryMs = 1_000;
const patienceMs = 2_000;

const read = { name: 'pgfresh.pump', text: 'select pgfresh_engine.pump_changes($1::uuid, $2::pg_snapshot) as answer' };
const settle = {
  name: 'pgfresh.settle',
  text: 'select pgfresh_engine.settle_changes($1::pg_snapshot, $2::pg_snapshot, $3::int[], $4::int[], $5::timestamptz[])',
};

/**
 * Reads the marks and publishes those that their own transaction has not told. One at a time, by a lease; every process
 * with somebody who watches is ready to take over. A mark is forgotten only after it was published, so one that stops
 * anywhere loses nothing: the next one reads all that is there.
 */
export class Pump extends Service {
  readonly name = 'pump';
  readonly #options: PumpOptions;
  readonly #holder = randomUUID();
  readonly #wake = new Wake();
  #loop: Promise<void> | undefined;
  /** What it knows while it has the duty. */
  #duty: PumpDuty | undefined;

  constructor(options: PumpOptions) {
    super();
    this.#options = options;
  }

  /** Somebody has begun to watch. */
  wake(): void {
    this.#wake.wake();
  }

  /** Reads and publishes once; says whether it has the duty. */
  async turn(): Promise<boolean> {
    const { db, bus, events } = this.#options;
    const since = performance.now();
    const [row] = await db.query<{ answer: (MarkedChanges & Unsettled) | null }>(read, [
      this.#holder,
      this.#duty?.since ?? null,
    ]);
    const answer = row!.answer;
    if (!answer) {
      this.#duty = undefined;
      return false;
    }
    const duty = (this.#duty ??= new PumpDuty(since));
    const changes = asChanges(answer.changes.filter(([, , , isTold]) => !isTold));
    if (changes.length > 0) {
      await bus.publish(changes);
      events.emit({ type: 'changes.published', types: changes.length, ms: performance.now() - since });
    }
    duty.note(answer.snapshot, answer.changes.length > 0, performance.now());
    await this.#settle(duty, answer);
    return true;
  }

  protected async onStart(): Promise<void> {
    this.#loop = every(askEveryMs, () => this.#look(), {
      signal: this.stopSignal,
      wake: this.#wake,
      now: true,
      failed: (error) => this.#failed(error),
    });
  }

  protected async onStop(): Promise<void> {
    // A database that says nothing more must not keep the process from ending.
    const ended = this.#loop?.then(() => this.#release());
    await within(patienceMs, ended);
  }

  /** Says after how long to look again. */
  async #look(): Promise<number> {
    if (this.#options.isWanted()) return (await this.turn()) ? readEveryMs : askEveryMs;
    await this.#release();
    return askEveryMs;
  }

  // What was read but perhaps not published is read again.
  #failed(error: unknown): void {
    this.#duty = undefined;
    this.#options.events.emit({ type: 'gateway.failed', step: 'pump', problem: problemOf(error) });
  }

  async #settle(duty: PumpDuty, answer: Unsettled): Promise<void> {
    // As marks, so that those hear of it too who only poll.
    const unmarked = duty.settling.look(answer);
    const types = duty.settling.takeSettled(answer);
    const cleared = duty.takeOld(performance.now());
    if (unmarked.length + types.length === 0 && !cleared) return;
    await this.#options.db.query(settle, [
      cleared?.from ?? null,
      cleared?.to ?? null,
      unmarked,
      types.map(([type]) => type),
      types.map(([, since]) => since),
    ]);
  }

  // Who takes over need not wait for the lease to end. If this fails, he does.
  async #release(): Promise<void> {
    if (!this.#duty) return;
    this.#duty = undefined;
    await this.#options.db
      .query(`select pgfresh_engine.release_duty('pump', $1::uuid)`, [this.#holder])
      .catch(() => {});
  }
}
