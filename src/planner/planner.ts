import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { setTimeout as wait } from 'node:timers/promises';
import type { Queryable } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import type { Events, WarningCode } from '../events/index.ts';
import { Service } from '../lifecycle/index.ts';

export interface PlannerOptions {
  readonly db: Queryable;
  readonly events: Events;
  readonly tickMs: number;
  readonly sweepMs: number;
}

/** How often each thing came of a look at the pairs. */
export type PlannerCounts = Readonly<Record<string, number>>;

interface Answer {
  /** Of a tick: more pairs are due than one call looks at. */
  readonly more?: boolean;
  /** Of a sweep: all pairs have had their turn. */
  readonly done?: boolean;
  /** Another planner is at work this moment. */
  readonly skipped?: 'locked' | number;
}

interface WarningRow {
  readonly code: WarningCode;
  readonly subject: string;
  readonly message: string;
  readonly next: string;
  readonly at: string;
}

// A sweep leaves the last sixth of its minute to others, however much there is to ask.
const sweepShare = 50 / 60;
const leaseSeconds = 10;
const patienceMs = 2_000;

/**
 * The loop of tick and sweep. What is planned is decided in the database; here is only when it is asked. Any number of
 * planners may run: the duty is held by one, and the others wait for its lease to end.
 */
export class Planner extends Service {
  readonly name = 'planner';
  readonly #options: PlannerOptions;
  readonly #holder = randomUUID();
  #loops: Promise<unknown> | undefined;
  #warnedUntil = '-infinity';

  constructor(options: PlannerOptions) {
    super();
    this.#options = options;
  }

  /** Looks at what is due. */
  async tick(): Promise<void> {
    if (!(await this.#isOnDuty())) return;
    await this.#run('tick', async (add) => {
      const { db } = this.#options;
      let answer: Answer;
      do answer = add(await call(db, 'plan_due_pairs'));
      while (answer.more && !this.stopSignal.aborted);
      add(await call(db, 'queue_scheduled_refreshes'));
    });
  }

  /** Asks about every demanded pair, as far as the time allows; the next sweep goes on from there. */
  async sweep(): Promise<void> {
    if (!(await this.#isOnDuty())) return;
    await this.#run('sweep', async (add) => {
      const { db, sweepMs } = this.#options;
      const deadline = performance.now() + sweepMs * sweepShare;
      await call(db, 'cleanup_stale_subscriptions');
      let answer: Answer;
      do answer = add(await call(db, 'check_and_queue_stale_data'));
      while (!answer.done && !this.stopSignal.aborted && performance.now() < deadline && (await this.#isOnDuty()));
      await db.query('select pgfresh.clear_unwatched_changes()');
    });
  }

  protected async onStart(): Promise<void> {
    const { tickMs, sweepMs } = this.#options;
    this.#loops = Promise.all([this.#every(tickMs, () => this.tick()), this.#every(sweepMs, () => this.sweep())]);
  }

  protected async onStop(): Promise<void> {
    const finished = async (): Promise<void> => {
      await this.#loops;
      // Who takes over need not wait for the lease to end. If this fails, he does.
      await this.#options.db.query(`select pgfresh.release_duty('planner', $1::uuid)`, [this.#holder]).catch(() => {});
    };
    // A database that says nothing more must not keep the process from ending.
    const patience = new AbortController();
    const tired = wait(patienceMs, undefined, { signal: patience.signal }).catch(() => {});
    await Promise.race([finished(), tired]);
    patience.abort();
  }

  async #isOnDuty(): Promise<boolean> {
    try {
      const hold = `select pgfresh.hold_duty('planner', $1::uuid, make_interval(secs => $2::int)) as held`;
      const [row] = await this.#options.db.query<{ held: boolean }>(hold, [this.#holder, leaseSeconds]);
      return row!.held;
    } catch (error) {
      this.#options.events.emit({ type: 'planner.failed', kind: 'duty', problem: problemOf(error) });
      return false;
    }
  }

  async #run(kind: 'tick' | 'sweep', work: (add: (answer: Answer) => Answer) => Promise<void>): Promise<void> {
    const { events } = this.#options;
    const since = performance.now();
    const counts: Record<string, number> = {};
    const add = (answer: Answer): Answer => {
      for (const [name, count] of Object.entries(answer)) {
        if (typeof count === 'number') counts[name] = (counts[name] ?? 0) + count;
      }
      return answer;
    };
    try {
      await work(add);
      events.emit({ type: 'planner.ran', kind, ms: performance.now() - since, counts });
      await this.#tellWarnings();
    } catch (error) {
      events.emit({ type: 'planner.failed', kind, problem: problemOf(error) });
    }
  }

  // What SQL functions warn of is a row first; here it becomes an event, and by that a log line and a metric.
  async #tellWarnings(): Promise<void> {
    const { db, events } = this.#options;
    const rows = await db.query<WarningRow>(
      `select code, subject, message, next_step as next, last_at::text as at from pgfresh.warnings
       where last_at > $1::timestamptz and last_at > (select pgfresh.clock()) - interval '1 minute' order by last_at`,
      [this.#warnedUntil],
    );
    for (const { code, subject, message, next, at } of rows) {
      events.emit({ type: 'warning', code, subject, message: `${subject}: ${message}`, next, recorded: true });
      this.#warnedUntil = at;
    }
  }

  async #every(periodMs: number, work: () => Promise<void>): Promise<void> {
    while (!this.stopSignal.aborted) {
      const since = performance.now();
      await work();
      const pause = Math.max(0, periodMs - (performance.now() - since));
      await wait(pause, undefined, { signal: this.stopSignal }).catch(() => {});
    }
  }
}

async function call(db: Queryable, work: PlannerCall): Promise<Answer> {
  const [row] = await db.query<{ answer: Answer }>(plannerStatement(work));
  return row!.answer;
}

type PlannerCall =
  | 'plan_due_pairs'
  | 'queue_scheduled_refreshes'
  | 'check_and_queue_stale_data'
  | 'cleanup_stale_subscriptions';

/**
 * What the planner sends. Its commit does not wait for the disk: a crash takes jobs and due times back together, and
 * the next tick plans them again. Who claims such a job waits for the disk himself, and by that for this commit too.
 */
export function plannerStatement(work: PlannerCall): { readonly name: string; readonly text: string } {
  return {
    name: `pgfresh.${work}`,
    text: `select set_config('synchronous_commit', 'off', true), pgfresh.${work}() as answer`,
  };
}
