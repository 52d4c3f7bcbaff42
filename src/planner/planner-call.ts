import type { Queryable } from '../database/index.ts';

/** How often each thing came of a look at the pairs. */
export type PlannerCounts = Readonly<Record<string, number>>;

export interface PlannerAnswer {
  /** Of a tick: more pairs are due than one call looks at. */
  readonly more?: boolean;
  /** Of a sweep: all pairs have had their turn. */
  readonly done?: boolean;
  /** Another planner is at work this moment. */
  readonly skipped?: 'locked' | number;
  /** Of a cleanup: how many subscriptions were ended. */
  readonly removed?: number;
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

export async function callPlanner(db: Queryable, work: PlannerCall): Promise<PlannerAnswer> {
  const [row] = await db.query<{ answer: PlannerAnswer }>(plannerStatement(work));
  return row!.answer;
}

/** Adds what an answer counts to what others have counted, and returns it. */
export function addCounts(counts: Record<string, number>, answer: PlannerAnswer): PlannerAnswer {
  for (const [name, count] of Object.entries(answer)) {
    if (typeof count === 'number') counts[name] = (counts[name] ?? 0) + count;
  }
  return answer;
}
