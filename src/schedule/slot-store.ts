import { storableJson, type Queryable } from '../database/index.ts';
import type { DueJob, SkipReason, SlotPlan } from './slot-plan.ts';

/** A run that was started in the database and assigned to us. */
export interface TakenRun {
  readonly run: number;
  readonly job: number;
  readonly name: string;
  readonly kind: 'sql' | 'handler';
  readonly functionName: string;
  readonly params: Record<string, unknown>;
  readonly timeoutMs: number;
  /** Null for a run triggered by hand. */
  readonly slot: Date | null;
  readonly attempt: number;
  readonly triggeredBy: 'scheduler' | 'manual' | 'catchup' | 'backfill';
  readonly latenessMs: number;
}

/** A job's slots that were just recorded as skipped. */
export interface SkippedSlots {
  readonly run: null;
  readonly name: string;
  readonly skipped: SkipReason;
  readonly occurrences: number;
}

export type RunVerdict = 'succeeded' | 'failed' | 'lost' | 'cancelled';

/** The jobs that a part of a scheduler runs. */
export interface Served {
  /** Jobs with these handlers. */
  readonly handlers: readonly string[];
  /** And jobs with SQL functions. */
  readonly functions: boolean;
}

const taken = `run_id as run, job_id as job, name, kind, function_name as "functionName", params, timeout_ms as "timeoutMs", slot, attempt,
  triggered_by as "triggeredBy", lateness_ms as "latenessMs", skipped, occurrences`;

const statements = {
  dueSlots: {
    name: 'pgfresh.due_slots',
    text: `select job_id as job, revision, slot, behind, schedule, timezone, every_min_ms as "everyMin", every_max_ms as "everyMax", enabled,
        paused_at as "pausedAt", nullif(paused_until, 'infinity') as "pausedUntil", blackout_dates as "blackoutDates", catch_up as "catchUp", catch_up_window_ms as "catchUpWindow",
        catch_up_max as "catchUpMax", jitter_ms as jitter, now
      from pgfresh_engine.due_slots($1::text[], $2::boolean, $3::text, $4::int)`,
  },
  settleSlots: {
    name: 'pgfresh.settle_slots',
    text: `select ${taken} from pgfresh_engine.settle_slots($1::bigint, $2::uuid, $3::jsonb, $4::int)`,
  },
  takeWaiting: {
    name: 'pgfresh.take_waiting_runs',
    text: `select ${taken} from pgfresh_engine.take_waiting_runs($1::bigint, $2::uuid, $3::text[], $4::boolean, $5::int)`,
  },
  pause: {
    name: 'pgfresh_engine.schedule_pause',
    text: 'select pgfresh_engine.schedule_pause($1::text[], $2::boolean) as ms',
  },
  end: {
    name: 'pgfresh.end_run',
    text: 'select pgfresh_engine.end_run($1::bigint, $2::int, $3::bigint, $4::text, $5::text, $6::jsonb) as ours',
  },
} as const;

/** A scheduler that claims runs, and its name for this request. */
interface Asking {
  readonly scheduler: number;
  readonly request: string;
}

/** The scheduler's queries. */
export class SlotStore {
  readonly #db: Queryable;
  readonly #served: readonly [handlers: readonly string[], functions: boolean];

  constructor(db: Queryable, { handlers, functions }: Served) {
    this.#db = db;
    this.#served = [handlers, functions];
  }

  async recover(scheduler: number): Promise<number> {
    const recover = 'select pgfresh_engine.recover_scheduled_runs($1::bigint) as count';
    const [row] = await this.#db.query<{ count: number }>(recover, [scheduler]);
    return row!.count;
  }

  dueSlots(limit: number): Promise<DueJob[]> {
    return this.#db.query<DueJob>(statements.dueSlots, [...this.#served, process.versions['tz'], limit]);
  }

  /** Settles plans that no one else has settled and that have room to run; returns the runs now ours, and the skips. */
  settleSlots(
    { scheduler, request }: Asking,
    plans: readonly SlotPlan[],
    room: number,
  ): Promise<(TakenRun | SkippedSlots)[]> {
    const values = [scheduler, request, storableJson(plans), room];
    return this.#db.query<TakenRun | SkippedSlots>(statements.settleSlots, values);
  }

  takeWaiting({ scheduler, request }: Asking, limit: number): Promise<TakenRun[]> {
    return this.#db.query<TakenRun>(statements.takeWaiting, [scheduler, request, ...this.#served, limit]);
  }

  /** Milliseconds until something is due. */
  async pause(): Promise<number> {
    const [row] = await this.#db.query<{ ms: number | null }>(statements.pause, this.#served);
    return row!.ms ?? Infinity;
  }

  /** Ends a run; false if it is no longer ours. */
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
