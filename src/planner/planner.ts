import { randomUUID } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { problemOf } from '../errors/index.ts';
import type { Events, WarningCode } from '../events/index.ts';
import { every, pause, Service, Wake, within } from '../lifecycle/index.ts';
import { askEachType, probeTypes } from './bad-types.ts';
import { usualLimits, type Limits } from './limits.ts';
import { addCounts, callPlanner, isTimeout, type PlannerAnswer, type PlannerDatabase } from './planner-call.ts';

export interface PlannerOptions {
  readonly db: PlannerDatabase;
  readonly events: Events;
  readonly tickMs: number;
  readonly limits?: Limits;
}

interface WarningRow {
  readonly code: WarningCode;
  readonly subject: string;
  readonly message: string;
  readonly next: string;
  readonly at: string;
}

const leaseSeconds = 10;
/** How long to check data types one by one when only all together time out. */
const apartMs = { first: 5_000, longest: 60_000 };
const patienceMs = 2_000;
const toldLimit = 1_000;
// A chunk of a sweep takes a tenth of a second.
const turn = { longestMs: 2_000, lookMs: 20 };

/**
 * The tick loop. The database decides what to plan; this only decides when to ask. Any number of planners may run: one
 * holds the duty, and the others wait for its lease to end.
 */
export class Planner extends Service {
  readonly name = 'planner';
  readonly #options: PlannerOptions;
  readonly #holder = randomUUID();
  readonly #limits: Limits;
  readonly #wake = new Wake();
  #loop: Promise<void> | undefined;
  #probes: Promise<void> | undefined;
  readonly #apart = {
    'pgfresh_engine.plan_due_pairs': { until: 0, pauseMs: apartMs.first },
    'pgfresh.queue_scheduled_refreshes': { until: 0, pauseMs: apartMs.first },
  };
  #warnedUntil = '-infinity';
  /** Warnings that this process emitted itself, until their rows are read. */
  readonly #told = new Set<string>();
  #forget: (() => void) | undefined;

  constructor(options: PlannerOptions) {
    super();
    this.#options = options;
    this.#limits = options.limits ?? usualLimits;
  }

  /** Plans the pairs that are due. */
  async tick(): Promise<void> {
    if (!(await this.#isOnDuty())) return;
    const { events } = this.#options;
    const since = performance.now();
    const counts: Record<string, number> = {};
    try {
      let isMore = true;
      while (isMore && !this.stopSignal.aborted) {
        isMore = await this.#ask('pgfresh_engine.plan_due_pairs', counts, () => this.#planInTurn());
      }
      await this.#ask('pgfresh.queue_scheduled_refreshes', counts, () =>
        this.#call('pgfresh.queue_scheduled_refreshes'),
      );
      events.emit({ type: 'planner.ran', kind: 'tick', ms: performance.now() - since, counts });
      await this.#tellWarnings();
    } catch (error) {
      events.emit({ type: 'planner.failed', kind: 'tick', problem: problemOf(error) });
    }
  }

  protected async onStart(): Promise<void> {
    this.#forget = this.#options.events.on('warning', ({ code, subject = '', message, recorded }) => {
      if (recorded) return;
      if (this.#told.size >= toldLimit) this.#told.clear();
      this.#told.add(JSON.stringify([code, subject, message]));
    });
    this.#loop = this.#tickUntilStopped();
  }

  protected async onStop(): Promise<void> {
    this.#forget?.();
    // An unresponsive database must not keep the process from stopping.
    await within(patienceMs, Promise.all([this.#loop, this.#probes]));
  }

  async #isOnDuty(): Promise<boolean> {
    try {
      const hold = `select pgfresh_engine.hold_duty('planner', $1::uuid, make_interval(secs => $2::int)) as held`;
      const [row] = await this.#options.db.query<{ held: boolean }>(hold, [this.#holder, leaseSeconds]);
      return row!.held;
    } catch (error) {
      this.#options.events.emit({ type: 'planner.failed', kind: 'duty', problem: problemOf(error) });
      return false;
    }
  }

  /** Checks all data types together, or one by one after a timeout. Returns whether there is more to do. */
  async #ask(
    work: 'pgfresh_engine.plan_due_pairs' | 'pgfresh.queue_scheduled_refreshes',
    counts: Record<string, number>,
    together: () => Promise<PlannerAnswer>,
  ): Promise<boolean> {
    const apart = this.#apart[work];
    if (performance.now() >= apart.until) {
      try {
        const answer = addCounts(counts, await together());
        if (answer.quarantined) this.#probe();
        apart.pauseMs = apartMs.first;
        return answer.more === true;
      } catch (error) {
        if (!isTimeout(error)) throw error;
      }
    }
    const isEachWell = await askEachType(this.#options.db, this.#limits, work, (answer) => {
      addCounts(counts, answer);
      if (answer.quarantined) this.#probe();
    });
    // No single type is slow, only all together: the next tick would lose that time again.
    if (isEachWell && performance.now() >= apart.until) {
      apart.until = performance.now() + apart.pauseMs;
      apart.pauseMs = Math.min(apart.pauseMs * 2, apartMs.longest);
    }
    return false;
  }

  /** Runs alongside ticks and never delays one. */
  #probe(): void {
    const { db, events } = this.#options;
    this.#probes ??= probeTypes(db, this.#limits, { signal: this.stopSignal, recovered: () => this.#wake.wake() })
      .catch((error: unknown) => events.emit({ type: 'planner.failed', kind: 'probe', problem: problemOf(error) }))
      .finally(() => (this.#probes = undefined));
  }

  #call(work: 'pgfresh_engine.plan_due_pairs' | 'pgfresh.queue_scheduled_refreshes'): Promise<PlannerAnswer> {
    return callPlanner(this.#options.db, this.#limits, work);
  }

  /** A running sweep, perhaps in another process, leaves gaps between its chunks for this. */
  async #planInTurn(): Promise<PlannerAnswer> {
    const deadline = performance.now() + turn.longestMs;
    for (;;) {
      const answer = await this.#call('pgfresh_engine.plan_due_pairs');
      if (answer.skipped !== 'locked' || this.stopSignal.aborted || performance.now() >= deadline) return answer;
      await pause(turn.lookMs, this.stopSignal);
    }
  }

  // Warnings of SQL functions, also in sweeps, are rows first; here they become events, and so log lines and metrics.
  async #tellWarnings(): Promise<void> {
    const { db, events } = this.#options;
    const rows = await db.query<WarningRow>(
      `select code, subject, message, next_step as next, last_at::text as at from pgfresh.warnings
       where last_at > $1::timestamptz and last_at > (select pgfresh.clock()) - interval '1 minute' order by last_at`,
      [this.#warnedUntil],
    );
    for (const { code, subject, message, next, at } of rows) {
      this.#warnedUntil = at;
      if (this.#told.delete(JSON.stringify([code, subject, message]))) continue;
      const isNamed = [`${subject}: `, `${subject} `, `The source ${subject} `].some((start) =>
        message.startsWith(start),
      );
      const text = isNamed ? message : `${subject}: ${message}`;
      events.emit({ type: 'warning', code, subject, message: text, next, recorded: true });
    }
  }

  async #tickUntilStopped(): Promise<void> {
    const { tickMs, events } = this.#options;
    const failed = (error: unknown): void =>
      events.emit({ type: 'planner.failed', kind: 'tick', problem: problemOf(error) });
    const tick = async (): Promise<number> => {
      const since = performance.now();
      await this.tick();
      return tickMs - (performance.now() - since);
    };
    // A data type that recovers wakes the loop, instead of waiting for the next second.
    await every(tickMs, tick, { signal: this.stopSignal, wake: this.#wake, now: true, failed });
    // Lets another process take over at once instead of when the lease ends.
    await this.#options.db
      .query(`select pgfresh_engine.release_duty('planner', $1::uuid)`, [this.#holder])
      .catch(() => {});
  }
}
