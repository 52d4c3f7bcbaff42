import { performance } from 'node:perf_hooks';
import type { JobContext, JobHandler } from '../config/index.ts';
import { problemOf } from '../errors/index.ts';

/** Work that other rooms provide. */
export interface BroughtWork {
  readonly sweep: JobHandler;
}

/** pgfresh's own scheduled jobs. `pgfresh_engine.sync_own_jobs` writes the rows that name these handlers. */
export function ownHandlers({ sweep }: BroughtWork): ReadonlyMap<string, JobHandler> {
  return new Map([...handlers, ['pgfresh.sweep', sweep]]);
}

export function isOwnHandler(name: string): boolean {
  return handlers.has(name) || name === 'pgfresh.sweep';
}

const handlers: ReadonlyMap<string, JobHandler> = new Map<string, JobHandler>([
  [
    'pgfresh.refresh',
    async ({ slot, params, db }) => {
      const open = `select pgfresh_engine.open_refresh_cycle($1::text, coalesce($2::timestamptz, date_trunc('milliseconds', pgfresh.clock()))) as opened`;
      // A slot opens one round, however often this runs.
      const [row] = await db.query<{ opened: boolean }>(open, [params['data_type'], slot]);
      return { success: true, message: row!.opened ? 'a round over all keys is open' : 'the round was open already' };
    },
  ],
  [
    'pgfresh.maintain',
    async ({ db, signal }) => {
      const history = await maintainHistory(db, signal);
      const details = { ...history, ...(await prune(db, signal)) };
      const message = (history.busy ?? 0) > 0 ? 'a part of the history is in use and has its turn next time' : 'done';
      return { success: true, message, details };
    },
  ],
  [
    'pgfresh.tidy',
    async ({ db }) => {
      const details: Record<string, number | null> = {};
      let problem: string | undefined;
      // In sequence, because the session in use has their plans. One failure does not stop the others.
      for (const [name, text] of Object.entries(chores)) {
        try {
          details[name] = (await db.query<{ count: number }>(text))[0]!.count;
        } catch (error) {
          details[name] = null;
          problem ??= problemOf(error);
        }
      }
      return { success: problem === undefined, message: problem ?? 'done', details };
    },
  ],
]);

interface HistoryCounts {
  readonly made?: number;
  readonly dropped?: number;
  readonly busy?: number;
  readonly moved?: number;
  readonly aside?: number;
}

const movingMs = 30_000;
const pruningMs = 15_000;

/** A call moves a bounded number of rows, so that transactions stay short; the rest follows an hour later. */
async function maintainHistory(db: JobContext['db'], signal: AbortSignal): Promise<HistoryCounts> {
  const until = performance.now() + movingMs;
  let moved = 0;
  for (;;) {
    const [row] = await db.query<{ counts: HistoryCounts }>('select pgfresh.maintain_queue_partitions() as counts');
    const { counts } = row!;
    moved += counts.moved ?? 0;
    const isDone = (counts.aside ?? 0) === 0 || (counts.busy ?? 0) > 0;
    if (isDone || signal.aborted || performance.now() > until) return { ...counts, moved };
  }
}

/** Pairs and the ledger, also in bounded sets; the walk over the pairs resumes where it stopped. */
async function prune(db: JobContext['db'], signal: AbortSignal): Promise<Record<string, number>> {
  const until = performance.now() + pruningMs;
  const counts = { pairs_forgotten: 0, usage_forgotten: 0 };
  const more = (isDone: boolean): boolean => !isDone && !signal.aborted && performance.now() < until;
  for (let isDone = false; more(isDone);) {
    const [row] = await db.query<{ pruned: { deleted?: number; done?: boolean } }>(
      'select pgfresh_engine.prune_pairs() as pruned',
    );
    const { deleted = 0, done = true } = row!.pruned;
    counts.pairs_forgotten += deleted;
    isDone = done;
  }
  for (let isDone = false; more(isDone);) {
    const [row] = await db.query<{ count: number }>('select pgfresh_engine.prune_usage() as count');
    counts.usage_forgotten += row!.count;
    isDone = row!.count === 0;
  }
  return counts;
}

/** Statements of every minute, each with its count. */
const chores = {
  // Data types come and go.
  jobs_changed: 'select pgfresh_engine.sync_own_jobs() as count',
  runs_forgotten: `select (pgfresh_engine.prune_scheduled_runs() -> 'deleted')::int as count`,
  jobs_counted: 'select pgfresh_engine.count_job_statistics() as count',
  warnings_forgotten: 'select pgfresh_engine.clear_old_warnings() as count',
  planner_runs_forgotten: 'select pgfresh_engine.clear_planner_runs() as count',
  changes_forgotten: 'select pgfresh_engine.clear_unwatched_changes() as count',
} as const;
