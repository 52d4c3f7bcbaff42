import { performance } from 'node:perf_hooks';
import type { Events } from '../events/index.ts';
import { pause } from '../lifecycle/index.ts';
import { noteTimeout, pairsAlone } from './bad-types.ts';
import { usualLimits, type Limits } from './limits.ts';
import {
  addCounts,
  callPlanner,
  isTimeout,
  type PlannerAnswer,
  type PlannerCounts,
  type PlannerDatabase,
} from './planner-call.ts';

interface SweepOptions {
  readonly db: PlannerDatabase;
  readonly events: Events;
  readonly limits?: Limits | undefined;
  /** Time after which the rest is left to the next sweep. */
  readonly budgetMs?: number | undefined;
}

/** What a sweep reports to the scheduler. */
interface Swept {
  readonly success: true;
  readonly message: string;
  readonly details: PlannerCounts;
}

// Sweeps start every minute; the last ten seconds are left to other jobs.
const usualBudgetMs = 50_000;
const cleanupMs = 20_000;
// Long enough for a waiting tick to run.
const betweenChunksMs = 50;

const chunk = 10_000;

/** The minutely job that checks every demanded pair, as far as time allows; the next sweep continues from there. */
export function sweepJob({ db, events, limits = usualLimits, budgetMs = usualBudgetMs }: SweepOptions) {
  return async ({ signal }: { readonly signal: AbortSignal }): Promise<Swept> => {
    const since = performance.now();
    const counts: Record<string, number> = {};
    // First, so that nothing is checked for viewers who have left.
    const removed = await cleanUp(db, limits);
    let isDone = false;
    for (let pairs = chunk, most = chunk; ;) {
      const answer = await sweepTogether(db, limits, pairs);
      // After a timeout, use small chunks, which grow again, but not to their former size.
      if (!answer) most = Math.max(pairsAlone, most / 4);
      pairs = answer ? Math.min(most, pairs * 4) : pairsAlone;
      isDone = addCounts(counts, answer ?? (await sweepAlone(db, limits))).done === true;
      if (isDone || signal.aborted || performance.now() - since >= budgetMs) break;
      await pause(betweenChunksMs, signal);
    }
    await db.query('select pgfresh_engine.warn_of_unserved_types()');
    events.emit({ type: 'planner.ran', kind: 'sweep', ms: performance.now() - since, counts });
    const message = isDone ? 'all pairs have had their turn' : 'its time was over, and the next run goes on from here';
    return { success: true, message, details: { ...counts, subscriptions_ended: removed } };
  };
}

/** Returns how many subscriptions ended. It also reads key tables, and one that hangs must not end the sweep. */
async function cleanUp(db: PlannerDatabase, limits: Limits): Promise<number> {
  try {
    const cleanupLimits = { ...limits, statementMs: cleanupMs };
    return (await callPlanner(db, cleanupLimits, 'pgfresh.cleanup_stale_subscriptions')).removed ?? 0;
  } catch (error) {
    if (isTimeout(error)) return 0;
    throw error;
  }
}

/** The next chunk, across data types; undefined on a timeout. */
async function sweepTogether(db: PlannerDatabase, limits: Limits, pairs: number): Promise<PlannerAnswer | undefined> {
  try {
    return await callPlanner(db, limits, 'pgfresh.check_and_queue_stale_data', { int: pairs });
  } catch (error) {
    if (isTimeout(error)) return undefined;
    throw error;
  }
}

/** A few pairs of the next data type. If that times out too, the sweep continues after this type. */
async function sweepAlone(db: PlannerDatabase, limits: Limits): Promise<PlannerAnswer> {
  const [row] = await db.query<{ type: number | null }>('select pgfresh_engine.next_swept_type() as type');
  try {
    return await callPlanner(db, limits, 'pgfresh.check_and_queue_stale_data', { int: pairsAlone, boolean: true });
  } catch (error) {
    if (!isTimeout(error) || row!.type === null) throw error;
    await noteTimeout(db, row!.type, 'sweep', error);
    return {};
  }
}
