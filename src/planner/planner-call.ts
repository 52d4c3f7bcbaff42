import { type Database, failureOf } from '../database/index.ts';
import type { Limits } from './limits.ts';

/** How often each thing came of a look at the pairs. */
export type PlannerCounts = Readonly<Record<string, number>>;

export interface PlannerAnswer {
  /** Of a tick: more pairs are due than one call looks at. */
  readonly more?: boolean;
  /** Of a tick: the data types that are to be probed. */
  readonly quarantined?: readonly number[];
  /** Of a sweep: all pairs have had their turn. */
  readonly done?: boolean;
  /** Another planner is at work this moment. */
  readonly skipped?: 'locked' | number;
  /** Of a cleanup: how many subscriptions were ended. */
  readonly removed?: number;
}

type PlannerCall =
  | 'pgfresh_engine.plan_due_pairs'
  | 'pgfresh.queue_scheduled_refreshes'
  | 'pgfresh.check_and_queue_stale_data'
  | 'pgfresh.cleanup_stale_subscriptions';

/** What the planner needs of the database. */
export type PlannerDatabase = Pick<Database, 'query' | 'transact'>;

/**
 * What the planner sends. Its commit does not wait for the disk: a crash takes jobs and due times back together, and
 * the next tick plans them again. A worker that claims such a job waits for the disk, and so for this commit too.
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

/** Calls one function of the planner. What it asks of users' tables and functions may take as long as the limits say. */
export function callPlanner(
  db: PlannerDatabase,
  limits: Limits,
  work: PlannerCall,
  values: Readonly<Record<string, unknown>> = {},
): Promise<PlannerAnswer> {
  // By a transaction: a limit that the statement itself set would come too late for it.
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

/** Whether something took too long, and nothing else is wrong. */
export function isTimeout(error: unknown): boolean {
  const failure = failureOf(error);
  return failure === 'lock_timeout' || failure === 'statement_timeout';
}

/** Adds what an answer counts to what others have counted, and returns it. */
export function addCounts(counts: Record<string, number>, answer: PlannerAnswer): PlannerAnswer {
  for (const [name, count] of Object.entries(answer)) {
    if (typeof count === 'number') counts[name] = (counts[name] ?? 0) + count;
  }
  return answer;
}
