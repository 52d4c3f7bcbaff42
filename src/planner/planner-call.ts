import { type Database, failureOf } from '../database/index.ts';
import type { Limits } from './limits.ts';

/** Counts of each result of checking pairs. */
export type PlannerCounts = Readonly<Record<string, number>>;

export interface PlannerAnswer {
  /** Tick: more pairs are due than one call handles. */
  readonly more?: boolean;
  /** Tick: the data types to probe. */
  readonly quarantined?: readonly number[];
  /** Sweep: all pairs have been checked. */
  readonly done?: boolean;
  /** Another planner is running at this moment. */
  readonly skipped?: 'locked' | number;
  /** Cleanup: how many subscriptions ended. */
  readonly removed?: number;
}

type PlannerCall =
  | 'pgfresh_engine.plan_due_pairs'
  | 'pgfresh.queue_scheduled_refreshes'
  | 'pgfresh.check_and_queue_stale_data'
  | 'pgfresh.cleanup_stale_subscriptions';

/** The database methods that the planner needs. */
export type PlannerDatabase = Pick<Database, 'query' | 'transact'>;

/**
 * The planner's statement. Its commit does not wait for the disk: a crash undoes jobs and due times together, and the
 * next tick plans them again. A worker that claims such a job waits for the disk, and so for this commit too.
 */
export function plannerStatement(
  work: PlannerCall,
  casts: readonly string[] = [],
): { readonly name: string; readonly text: string } {
  const parameters = casts.map((cast, place) => `$${place + 1}::${cast}`).join(', ');
  return {
    name: [work, ...casts].join('.'),
    text: `select set_config('synchronous_commit', 'off', true), ${work}(${parameters}) as answer`,
  };
}

/** Calls a planner function, within the limits for users' tables and functions. */
export function callPlanner(
  db: PlannerDatabase,
  limits: Limits,
  work: PlannerCall,
  values: Readonly<Record<string, unknown>> = {},
): Promise<PlannerAnswer> {
  // In a transaction: a timeout set by the statement itself would not apply to it.
  return db.transact(
    work,
    async (tx) => {
      const statement = plannerStatement(work, Object.keys(values));
      const [row] = await tx.query<{ answer: PlannerAnswer }>(statement, Object.values(values));
      return row!.answer;
    },
    { lockTimeoutMs: limits.lockMs, statementTimeoutMs: limits.statementMs },
  );
}

/** Whether the error is a timeout. */
export function isTimeout(error: unknown): boolean {
  const failure = failureOf(error);
  return failure === 'lock_timeout' || failure === 'statement_timeout';
}

/** Adds the counts of an answer to `counts`, and returns the answer. */
export function addCounts(counts: Record<string, number>, answer: PlannerAnswer): PlannerAnswer {
  for (const [name, count] of Object.entries(answer)) {
    if (typeof count === 'number') counts[name] = (counts[name] ?? 0) + count;
  }
  return answer;
}
