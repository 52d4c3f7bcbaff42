import { storableJson, type Queryable } from '../database/index.ts';
import type { DueJob, SkipReason, SlotPlan } from './slot-plan.ts';

/** A run that has been started in the database and is ours to do. */
export interface TakenRun {
  readonly run: number;
  readonly job: number;
  readonly name: string;
  readonly kind: 'sql' | 'handler';
  readonly functionName: string;
  readonly params: Record<string, unknown>;
  readonly timeoutMs: number;
  /** Null for a run that was asked for by hand. */
  readonly slot: Date | null;
  readonly attempt: number;
  readonly triggeredBy: 'scheduler' | 'manual' | 'catchup' | 'backfill';
  readonly latenessMs: number;
}

/** Slots of a job that were just recorded as not run. */
export interface SkippedSlots {
  readonly run: null;
  readonly name: string;
  readonly skipped: SkipReason;
  readonly occurrences: number;
}

export type RunVerdict = 'succeeded' | 'failed' | 'lost' | 'cancelled';

export interface Heartbeat {
  readonly alive: boolean;
  /** How many other schedulers have let their lease run out. */
  readonly dead?: number;
  /** Runs of ours that are to be cancelled. */
  readonly cancel?: readonly number[];
}

const taken = `run_id as run, job_id as job, name, kind, function_name as "functionName", params, timeout_ms as "timeoutMs", slot, attempt,
  triggered_by as "triggeredBy", lateness_ms as "latenessMs", skipped, occurrences`;

const statements = {
  dueSlots: {
    name: 'pgfresh.due_slots',
    text: `select job_id as job, revision, slot, behind, schedule, timezone, every_min_ms as "everyMin", every_max_ms as "everyMax", enabled,
        paused_at as "pausedAt", paused_until as "pausedUntil", blackout_dates as "blackoutDates", catch_up as "catchUp", catch_up_window_ms as "catchUpWindow",
        catch_up_max as "catchUpMax", jitter_ms as jitter, now
      from pgfresh.due_slots($1::text[], $2::int)`,
  },
  settleSlots: {
    name: 'pgfresh.settle_slots',
    text: `select ${taken} from pgfresh.settle_slots($1::bigint, $2::jsonb, $3::int)`,
  },
  takeWaiting: {
    name: 'pgfresh.take_waiting_runs',
    text: `select ${taken} from pgfresh.take_waiting_runs($1::bigint, $2::text[], $3::int)`,
  },
  pause: { name: 'pgfresh.schedule_pause', text: 'select pgfresh.schedule_pause($1::text[]) as ms' },
  heartbeat: { name: 'pgfresh.heartbeat_scheduler', text: 'select pgfresh.heartbeat_scheduler($1::bigint) as answer' },
  end: {
    name: 'pgfresh.end_run',
    text: 'select pgfresh.end_run($1::bigint, $2::int, $3::bigint, $4::text, $5::text, $6::jsonb) as ours',
  },
} as const;

/** What a scheduler process asks of the database. */
export class SlotStore {
  readonly #db: Queryable;
  readonly #handlers: readonly string[];

  constructor(db: Queryable, handlers: readonly string[]) {
    this.#db = db;
    this.#handlers = handlers;
  }

  async register(name: string): Promise<number> {
    const register = 'select pgfresh.register_scheduler($1::text, $2::text[], $3::text) as id';
    const [row] = await this.#db.query<{ id: number }>(register, [name, this.#handlers, process.versions['tz']]);
    return row!.id;
  }

  async heartbeat(scheduler: number): Promise<Heartbeat> {
    const [row] = await this.#db.query<{ answer: Heartbeat }>(statements.heartbeat, [scheduler]);
    return row!.answer;
  }

  async recover(scheduler: number): Promise<number> {
    const recover = 'select pgfresh.recover_scheduled_runs($1::bigint) as count';
    const [row] = await this.#db.query<{ count: number }>(recover, [scheduler]);
    return row!.count;
  }

  async retire(scheduler: number): Promise<void> {
    await this.#db.query('select pgfresh.retire_scheduler($1::bigint)', [scheduler]);
  }

  dueSlots(limit: number): Promise<DueJob[]> {
    return this.#db.query<DueJob>(statements.dueSlots, [this.#handlers, limit]);
  }

  /** Settles plans, each unless somebody was faster or there is no room for its run; returns the runs that are now ours to do, and what was skipped. */
  settleSlots(scheduler: number, plans: readonly SlotPlan[], room: number): Promise<(TakenRun | SkippedSlots)[]> {
    return this.#db.query<TakenRun | SkippedSlots>(statements.settleSlots, [scheduler, storableJson(plans), room]);
  }

  takeWaiting(scheduler: number, limit: number): Promise<TakenRun[]> {
    return this.#db.query<TakenRun>(statements.takeWaiting, [scheduler, this.#handlers, limit]);
  }

  /** Milliseconds until something is due. */
  async pause(): Promise<number> {
    const [row] = await this.#db.query<{ ms: number | null }>(statements.pause, [this.#handlers]);
    return row!.ms ?? Infinity;
  }

  /** Ends a run; false if it is not ours any more. */
  async end(
    { run, job }: Pick<TakenRun, 'run' | 'job'>,
    scheduler: number,
    verdict: RunVerdict,
    { message, details }: { readonly message: string; readonly details?: unknown },
  ): Promise<boolean> {
    const json = details === undefined ? null : storableJson(details);
    const values = [run, job, scheduler, verdict, message, json];
    const [row] = await this.#db.query<{ ours: boolean }>(statements.end, values);
    return row!.ours;
  }
}
