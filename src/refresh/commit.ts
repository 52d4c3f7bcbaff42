import { performance } from 'node:perf_hooks';
import { failureOf, type Database, type Queryable } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import { failpoint, halves, pause } from '../lifecycle/index.ts';
import type { ClaimedJob, Queue } from '../queue/index.ts';
import { countCalls } from '../sources/index.ts';
import { afterFailure } from './commit-failure.ts';
import { completeJobs, fenceJobs, isPutBack, turnBackJobs } from './ends.ts';
import { LossRefusal, noteSuspicion, requireFewLosses, TooManyLosses } from './losses.ts';
import { Refusal, type OutcomeName, type SuccessName } from './outcomes.ts';
import type { RefreshType } from './refresh-type.ts';
import type { Cost, Fetched, RefusedAnswer } from './refresher.ts';
import { keepRefused } from './refused.ts';
import { ageOf, outcomeOf, writeRows, type Writable } from './rows.ts';

/** A job with its answer, ready to be ended. */
export interface ReadyJob {
  readonly job: ClaimedJob;
  readonly fetched: Fetched;
  /** Since when its commit has been blocked by a lock, by `performance.now()`. */
  readonly stuckSince?: number | undefined;
}

/** How a job ended, for events. */
export interface EndedJob {
  readonly job: ClaimedJob;
  readonly outcome: OutcomeName;
  readonly cost: Cost;
  readonly commitMs: number;
  readonly error?: string | undefined;
}

/** The result of ending jobs. */
export interface Ends {
  readonly ended: readonly EndedJob[];
  /** Blocked by a lock, or by a server that refuses writes. Their answers are kept: end them again after a pause. */
  readonly stuck: readonly ReadyJob[];
  /** Whether the whole table is locked, not only some of its rows. */
  readonly isTableLocked: boolean;
  /** Why some ends could not be recorded. Their cost is booked; recovery puts the jobs back. */
  readonly problems: readonly string[];
}

interface Good extends Writable {
  readonly job: ClaimedJob;
  readonly cost: Cost;
  readonly answer?: RefusedAnswer | undefined;
  readonly ready: ReadyJob;
}

interface Bad {
  readonly job: ClaimedJob;
  readonly cost: Cost;
  readonly refusal: Refusal;
  readonly answer?: RefusedAnswer | undefined;
  readonly ready: ReadyJob;
}

/** The result of one commit. */
interface Once {
  readonly ended: readonly EndedJob[];
  /** Their data type was redefined since they were claimed. */
  readonly outdated: readonly Good[];
}

/** State of one call of `end`. */
interface Run {
  readonly type: RefreshType;
  readonly signal: AbortSignal;
  readonly ended: EndedJob[];
  readonly stuck: ReadyJob[];
  readonly problems: string[];
  isTableLocked: boolean;
  lockTimeoutMs: number;
  /** Unset: the pool's timeout applies. */
  statementTimeoutMs: number | undefined;
  /** Consecutive timeouts. */
  misses: number;
}

const longestPauseMs = 1_000;
const lockTimeoutMs = 2_000;
/** Used while searching for the job that is blocked by a lock, and for jobs that were. */
const shortLockTimeoutMs = 100;
/** The same for statements, for instance when a trigger hangs on one of the rows. */
const shortStatementTimeoutMs = 3_000;
/** Enough to find one of 1,000 by bisection. */
const mostMisses = 12;
/** How long an answer waits for a lock before its job fails as `busy`. */
export const lockPatienceMs = 20_000;
const redefined = 'the data type was changed while the job ran';

/** Ends jobs of one data type together, in one transaction: fence, rows, then the queue. */
export class Commits {
  readonly #db: Database;
  readonly #queue: Queue;

  constructor(db: Database, queue: Queue) {
    this.#db = db;
    this.#queue = queue;
  }

  /** Ends the jobs, except those blocked by a lock. Once the signal aborts, a lost connection is not retried. */
  async end(type: RefreshType, jobs: readonly ReadyJob[], signal: AbortSignal): Promise<Ends> {
    const isRepeated = jobs.some(({ stuckSince }) => stuckSince !== undefined);
    const run: Run = {
      type,
      signal,
      ended: [],
      stuck: [],
      problems: [],
      isTableLocked: false,
      lockTimeoutMs: isRepeated ? shortLockTimeoutMs : lockTimeoutMs,
      statementTimeoutMs: undefined,
      misses: 0,
    };
    const good: Good[] = [];
    const bad: Bad[] = [];
    for (const ready of jobs) {
      const { job, fetched } = ready;
      if ('refusal' in fetched) bad.push({ job, ready, ...fetched });
      else good.push({ job, ready, ...fetched });
    }
    await this.#commit(run, good);
    await this.#turnBack(run, bad);
    return run;
  }

  /** Whether no lock on the whole table keeps the data type from being written now. */
  async mayWrite(type: RefreshType): Promise<boolean> {
    try {
      const lock = `lock table ${type.table.name} in row exclusive mode`;
      await this.#db.transact('probe', (tx) => tx.query(lock), { attempts: 1, lockTimeoutMs: shortLockTimeoutMs });
      return true;
    } catch (error) {
      // Foreign tables cannot be locked; other errors show up in the commit.
      return failureOf(error) !== 'lock_timeout';
    }
  }

  async #commit(run: Run, good: readonly Good[]): Promise<void> {
    if (good.length === 0) return;
    if (run.isTableLocked || run.misses > mostMisses) return this.#keep(run, good, 'the table is locked');
    let repeated = 0;
    // The results of each attempt, in case one was committed but its confirmation was lost.
    const found = new Map<number, SuccessName>();
    for (let pauseMs = 20; ; pauseMs = Math.min(pauseMs * 2, longestPauseMs)) {
      let once: Once;
      try {
        once = await this.#commitOnce(run, good, found);
      } catch (error) {
        if (error instanceof TooManyLosses) return this.#withoutSuspects(run, good, error);
        const next = afterFailure(error, good.length, repeated);
        if (next.step === 'again') {
          if (next.counted) repeated++;
          await pauseOrGiveUp(pauseMs, run.signal, error);
          continue;
        }
        if (next.step === 'refuse') {
          const refusal = new Refusal(next.outcome, problemOf(error), { cause: error });
          return this.#turnBack(run, refused(good, refusal));
        }
        if (next.step === 'later' || next.step === 'wait') {
          run.misses++;
          run.lockTimeoutMs = shortLockTimeoutMs;
          if (failureOf(error) === 'statement_timeout') run.statementTimeoutMs = shortStatementTimeoutMs;
          run.isTableLocked ||= run.misses === 1 && !(await this.mayWrite(run.type));
          // When stopping, there is no time to search for the job that is the cause.
          if (!next.shared || run.isTableLocked || run.signal.aborted) return this.#keep(run, good, problemOf(error));
        }
        await failpoint('commit.before-halves');
        for (const half of halves(good)) await this.#commit(run, half);
        return;
      }
      run.ended.push(...once.ended);
      run.misses = 0;
      return this.#turnBack(run, refused(once.outdated, new Refusal('redefined', redefined)));
    }
  }

  /** Keeps answers blocked by a lock for some time, so that they need not be fetched and paid for again. */
  async #keep(run: Run, good: readonly Good[], problem: string): Promise<void> {
    const now = performance.now();
    const [late, early] = divided(good, ({ ready }) => isOverdue(ready, now));
    if (run.signal.aborted) return this.#turnBack(run, refused(good, new Refusal('interrupted', problem)));
    run.stuck.push(...early.map(({ ready }) => ({ ...ready, stuckSince: ready.stuckSince ?? now })));
    await this.#turnBack(run, refused(late, new Refusal('busy', problem)));
  }

  /** Refuses the answers that delete too many rows, and writes the others. */
  async #withoutSuspects(run: Run, good: readonly Good[], { refusals }: TooManyLosses): Promise<void> {
    const suspects = good.flatMap(({ job, cost, answer, ready }) => {
      const refusal = refusals.get(job.id);
      return refusal ? [{ job, cost, refusal, answer, ready }] : [];
    });
    await this.#commit(
      run,
      good.filter(({ job }) => !refusals.has(job.id)),
    );
    await this.#turnBack(run, suspects);
  }

  async #commitOnce(run: Run, good: readonly Good[], found: Map<number, SuccessName>): Promise<Once> {
    const { type } = run;
    const since = performance.now();
    await failpoint('commit.before-begin');
    const { ended, outdated } = await this.#db.transact(
      'refresh',
      async (tx) => {
        const fence = await fenceJobs(
          tx,
          type.id,
          good.map(({ job }) => job),
        );
        await failpoint('commit.after-fence');
        const own = new Set(fence.ours);
        const ours = good.filter(({ job }) => own.has(job.id));
        const judged = ours.length === 0 ? [] : await this.#write(tx, type, ours, fence.now, since);
        const done = good.flatMap((one) => {
          const outcome = fence.done.includes(one.job.id) ? found.get(one.job.id) : undefined;
          return outcome ? [{ ...one, outcome }] : [];
        });
        for (const { job, outcome } of judged) found.set(job.id, outcome);
        await failpoint('commit.before-commit');
        return { ended: [...judged, ...done], outdated: new Set(fence.outdated) };
      },
      {
        attempts: 1,
        immediateConstraints: true,
        lockTimeoutMs: run.lockTimeoutMs,
        ...(run.statementTimeoutMs === undefined ? {} : { statementTimeoutMs: run.statementTimeoutMs }),
      },
    );
    await failpoint('commit.after-commit');
    const commitMs = performance.now() - since;
    return {
      ended: ended.map(({ job, cost, outcome }) => ({ job, cost, outcome, commitMs })),
      outdated: good.filter(({ job }) => outdated.has(job.id)),
    };
  }

  async #write(tx: Queryable, type: RefreshType, ours: readonly Good[], now: string, since: number) {
    const verdicts = await writeRows(tx, type, ours, now);
    await failpoint('commit.after-rows');
    await requireFewLosses(tx, type, verdicts);
    const judged = ours.map((one) => {
      const verdict = verdicts.get(one.job.id);
      return {
        job: one.job,
        cost: one.cost,
        outcome: outcomeOf(one, verdict),
        rowAt: verdict?.rowAt ?? undefined,
        sourceAt: verdict?.sourceAt ?? undefined,
        age: ageOf(one),
      };
    });
    await completeJobs(this.#queue, tx, judged, performance.now() - since);
    await failpoint('commit.after-end');
    return judged;
  }

  /** Failures and put-backs use separate transactions: both lock rows of sources and ledgers. */
  async #turnBack(run: Run, bad: readonly Bad[]): Promise<void> {
    const [putBack, failed] = divided(bad, isPutBack);
    await this.#turnBackAlike(run, failed);
    await this.#turnBackAlike(run, putBack);
  }

  async #turnBackAlike(run: Run, bad: readonly Bad[]): Promise<void> {
    if (bad.length === 0) return;
    const since = performance.now();
    for (let pauseMs = 20, repeated = 0; ; pauseMs = Math.min(pauseMs * 2, longestPauseMs)) {
      try {
        await failpoint('turn-back.before-begin');
        const { lockTimeoutMs: lock } = run;
        await this.#db.transact('turn back', (tx) => this.#turnBackOnce(tx, run.type, bad), { lockTimeoutMs: lock });
        await failpoint('turn-back.after-commit');
        const commitMs = performance.now() - since;
        for (const { job, cost, refusal } of bad) {
          run.ended.push({ job, cost, outcome: refusal.outcome, error: refusal.message, commitMs });
        }
        return;
      } catch (error) {
        const next = afterFailure(error, bad.length, repeated);
        if (next.step === 'again') {
          if (next.counted) repeated++;
          await pauseOrGiveUp(pauseMs, run.signal, error);
          continue;
        }
        if (next.step === 'wait') return keepAll(run, bad, error);
        if (next.step === 'later') run.lockTimeoutMs = shortLockTimeoutMs;
        if (bad.length > 1) {
          for (const half of halves(bad)) await this.#turnBackAlike(run, half);
          return;
        }
        return this.#withoutEnd(run, bad[0]!, error, next.step === 'later');
      }
    }
  }

  /** The end of this job could not be recorded: try without its answer, later, or give up. Its calls are booked. */
  async #withoutEnd(run: Run, bad: Bad, error: unknown, isLocked: boolean): Promise<void> {
    const now = performance.now();
    if (isLocked && !run.signal.aborted && !isOverdue(bad.ready, now)) {
      run.stuck.push({ ...bad.ready, stuckSince: bad.ready.stuckSince ?? now });
      return;
    }
    if (!isLocked && bad.answer) return this.#turnBackAlike(run, [{ ...bad, answer: undefined }]);
    const { type, problems } = run;
    problems.push(`the end of ${type.name}/${bad.job.key} could not be recorded: ${problemOf(error)}`);
    const { calls, bytes } = bad.cost;
    if (calls > 0 || bytes > 0) await countCalls(this.#db, bad.job.source, calls, bytes);
  }

  async #turnBackOnce(tx: Queryable, type: RefreshType, bad: readonly Bad[]): Promise<void> {
    // Same lock order as commits, or both could deadlock: jobs, losses of the type, then what the end locks.
    if (bad.some(({ refusal }) => refusal instanceof LossRefusal)) {
      await fenceJobs(
        tx,
        type.id,
        bad.map(({ job }) => job),
      );
      await noteSuspicion(tx, type, bad);
    }
    await turnBackJobs(this.#queue, tx, bad);
    await failpoint('turn-back.after-end');
    await keepRefused(tx, type, bad);
    await failpoint('turn-back.before-commit');
  }
}

function refused(good: readonly Good[], refusal: Refusal): Bad[] {
  return good.map(({ job, cost, answer, ready }) => ({ job, cost, refusal, answer, ready }));
}

/** The database refuses writes, so nothing can be booked: keep everything until it accepts them. */
function keepAll(run: Run, bad: readonly Bad[], error: unknown): void {
  if (run.signal.aborted) throw error;
  const now = performance.now();
  run.stuck.push(...bad.map(({ ready }) => ({ ...ready, stuckSince: ready.stuckSince ?? now })));
}

function isOverdue({ stuckSince }: ReadyJob, now: number): boolean {
  return stuckSince !== undefined && now - stuckSince > lockPatienceMs;
}

function divided<T>(list: readonly T[], isFirst: (one: T) => boolean): [T[], T[]] {
  const first: T[] = [];
  const second: T[] = [];
  for (const one of list) (isFirst(one) ? first : second).push(one);
  return [first, second];
}

/** Waits before the next attempt. When stopping, throws at once; the end of the lease frees the jobs. */
async function pauseOrGiveUp(ms: number, signal: AbortSignal, error: unknown): Promise<void> {
  if (signal.aborted) throw error;
  await pause(ms * (0.5 + Math.random() / 2), signal);
}
