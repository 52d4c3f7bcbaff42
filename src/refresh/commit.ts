import { performance } from 'node:perf_hooks';
import { setTimeout as wait } from 'node:timers/promises';
import type { Database, Queryable } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import { failpoint } from '../lifecycle/index.ts';
import type { ClaimedJob, Queue } from '../queue/index.ts';
import { afterFailure } from './commit-failure.ts';
import { completeJobs, fenceJobs, turnBackJobs } from './ends.ts';
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
}

/** What became of a job, for those who watch. */
export interface EndedJob {
  readonly job: ClaimedJob;
  readonly outcome: OutcomeName;
  readonly cost: Cost;
  readonly commitMs: number;
  readonly error?: string | undefined;
}

interface Good extends Writable {
  readonly job: ClaimedJob;
  readonly cost: Cost;
  readonly answer?: RefusedAnswer | undefined;
}

interface Bad {
  readonly job: ClaimedJob;
  readonly cost: Cost;
  readonly refusal: Refusal;
  readonly answer?: RefusedAnswer | undefined;
}

const longestPauseMs = 1_000;

/** Ends jobs of one data type together: fence, rows, the queue's end, in one transaction. */
export class Commits {
  readonly #db: Database;
  readonly #queue: Queue;

  constructor(db: Database, queue: Queue) {
    this.#db = db;
    this.#queue = queue;
  }

  /** Ends the jobs, whatever it takes, or gives up when the signal says so. Tells of each what became of it. */
  async end(type: RefreshType, ready: readonly ReadyJob[], signal: AbortSignal): Promise<EndedJob[]> {
    const good: Good[] = [];
    const bad: Bad[] = [];
    for (const { job, fetched } of ready) {
      if ('refusal' in fetched) bad.push({ job, ...fetched });
      else good.push({ job, ...fetched });
    }
    return [...(await this.#commit(type, good, signal)), ...(await this.#turnBack(type, bad, signal))];
  }

  async #commit(type: RefreshType, good: readonly Good[], signal: AbortSignal): Promise<EndedJob[]> {
    if (good.length === 0) return [];
    let repeated = 0;
    // What each try has found, for the case that it was committed and nobody said so.
    const found = new Map<number, SuccessName>();
    for (let pause = 20; ; pause = Math.min(pause * 2, longestPauseMs)) {
      try {
        return await this.#commitOnce(type, good, found);
      } catch (error) {
        if (error instanceof TooManyLosses) return this.#withoutSuspects(type, good, error, signal);
        const next = afterFailure(error, good.length, repeated);
        if (next.step === 'again') {
          if (next.counted) repeated++;
          await pauseOrGiveUp(pause, signal, error);
          continue;
        }
        if (next.step === 'refuse') {
          const refusal = new Refusal(next.outcome, problemOf(error), { cause: error });
          return this.#turnBack(
            type,
            good.map(({ job, cost, answer }) => ({ job, cost, refusal, answer })),
            signal,
          );
        }
        await failpoint('commit.before-halves');
        const middle = Math.ceil(good.length / 2);
        const first = await this.#commit(type, good.slice(0, middle), signal);
        return [...first, ...(await this.#commit(type, good.slice(middle), signal))];
      }
    }
  }

  /** What may be written is written, and the answers that take too much away are refused. */
  async #withoutSuspects(
    type: RefreshType,
    good: readonly Good[],
    { refusals }: TooManyLosses,
    signal: AbortSignal,
  ): Promise<EndedJob[]> {
    const suspects = good.flatMap(({ job, cost, answer }) => {
      const refusal = refusals.get(job.id);
      return refusal ? [{ job, cost, refusal, answer }] : [];
    });
    const others = good.filter(({ job }) => !refusals.has(job.id));
    return [...(await this.#commit(type, others, signal)), ...(await this.#turnBack(type, suspects, signal))];
  }

  async #commitOnce(type: RefreshType, good: readonly Good[], found: Map<number, SuccessName>): Promise<EndedJob[]> {
    const since = performance.now();
    await failpoint('commit.before-begin');
    const ended = await this.#db.transact(
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
        return [...judged, ...done];
      },
      { attempts: 1, immediateConstraints: true },
    );
    await failpoint('commit.after-commit');
    const commitMs = performance.now() - since;
    return ended.map(({ job, cost, outcome }) => ({ job, cost, outcome, commitMs }));
  }

  async #write(tx: Queryable, type: RefreshType, ours: readonly Good[], now: string, since: number) {
    const verdicts = await writeRows(tx, type, ours, now);
    await failpoint('commit.after-rows');
    await requireFewLosses(tx, type, verdicts);
    const judged = ours.map((one) => {
      const verdict = verdicts.get(one.job.id);
      return {
        ...one,
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

  async #turnBack(type: RefreshType, bad: readonly Bad[], signal: AbortSignal): Promise<EndedJob[]> {
    if (bad.length === 0) return [];
    const since = performance.now();
    for (let pause = 20, repeated = 0; ; pause = Math.min(pause * 2, longestPauseMs)) {
      try {
        await failpoint('turn-back.before-begin');
        await this.#db.transact('turn back', (tx) => this.#turnBackOnce(tx, type, bad));
        await failpoint('turn-back.after-commit');
        const commitMs = performance.now() - since;
        return bad.map(({ job, cost, refusal }) => ({
          job,
          cost,
          outcome: refusal.outcome,
          error: refusal.message,
          commitMs,
        }));
      } catch (error) {
        const next = afterFailure(error, bad.length, repeated);
        // What can not even be turned back is put back by the next heartbeat, which does not name it any more.
        if (next.step !== 'again') throw error;
        if (next.counted) repeated++;
        await pauseOrGiveUp(pause, signal, error);
      }
    }
  }

  async #turnBackOnce(tx: Queryable, type: RefreshType, bad: readonly Bad[]): Promise<void> {
    // As commits do it: the jobs, then the losses of the type, then what the end takes. Else each could wait for the other.
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

/** Waits before the next try; whoever stops does not wait, and leaves the jobs to the end of the lease. */
async function pauseOrGiveUp(ms: number, signal: AbortSignal, error: unknown): Promise<void> {
  if (signal.aborted) throw error;
  await wait(ms * (0.5 + Math.random() / 2), undefined, { signal }).catch(() => {});
}
