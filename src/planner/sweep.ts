import { performance } from 'node:perf_hooks';
import { setTimeout as wait } from 'node:timers/promises';
import type { Queryable } from '../database/index.ts';
import type { Events } from '../events/index.ts';
import { addCounts, callPlanner, type PlannerCounts } from './planner-call.ts';

interface SweepOptions {
  readonly db: Queryable;
  readonly events: Events;
  /** When it leaves the rest to the next one. */
  readonly budgetMs?: number | undefined;
}

/** What the scheduler is told of a sweep. */
interface Swept {
  readonly success: true;
  readonly message: string;
  readonly details: PlannerCounts;
}

// A slot comes every minute, and the last sixth of it is for others, however much there is to ask.
const usualBudgetMs = 50_000;
// Long enough for a tick that waits for its turn.
const betweenChunksMs = 50;

/** What the scheduler does every minute: asks about every demanded pair, as far as the time allows; the next sweep goes on from there. */
export function sweepJob({ db, events, budgetMs = usualBudgetMs }: SweepOptions) {
  return async ({ signal }: { readonly signal: AbortSignal }): Promise<Swept> => {
    const since = performance.now();
    const counts: Record<string, number> = {};
    // First, so that nothing is asked for those who have gone.
    const { removed = 0 } = await callPlanner(db, 'cleanup_stale_subscriptions');
    let isDone = false;
    for (;;) {
      isDone = addCounts(counts, await callPlanner(db, 'check_and_queue_stale_data')).done === true;
      if (isDone || signal.aborted || performance.now() - since >= budgetMs) break;
      await wait(betweenChunksMs, undefined, { signal }).catch(() => {});
    }
    await db.query('select pgfresh.warn_of_unserved_types()');
    events.emit({ type: 'planner.ran', kind: 'sweep', ms: performance.now() - since, counts });
    const message = isDone ? 'all pairs have had their turn' : 'its time was over, and the next run goes on from here';
    return { success: true, message, details: { ...counts, subscriptions_ended: removed } };
  };
}
