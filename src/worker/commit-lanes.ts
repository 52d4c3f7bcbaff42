import { setImmediate as nextTurn } from 'node:timers/promises';
import { failpoint, Wake } from '../lifecycle/index.ts';
import { lockPatienceMs, type Commits, type EndedJob, type ReadyJob, type RefreshType } from '../refresh/index.ts';

interface LanesOptions {
  readonly commits: Pick<Commits, 'end' | 'mayWrite'>;
  /** Aborted when the time to stop is up: jobs blocked by a lock are put back. */
  readonly signal: AbortSignal;
  /** Called before jobs end. */
  readonly before: (type: RefreshType, batch: readonly ReadyJob[]) => Promise<void>;
  readonly after: (type: RefreshType, ends: LaneEnds) => void;
  readonly failed: (error: unknown) => void;
  /** Called each time the table is found locked, and when it is free again. */
  readonly onLock: (type: RefreshType, isLocked: boolean) => void;
  /** Whether the definition is current; a type that moved to another table does not wait for the old one. */
  readonly isCurrent: (type: RefreshType) => boolean;
}

/** The result of one commit. */
export interface LaneEnds {
  readonly batch: readonly ReadyJob[];
  /** Jobs that are no longer held; the others are blocked by a lock. */
  readonly left: readonly ReadyJob[];
  readonly ended: readonly EndedJob[];
}

/** What one data type has to commit, under one definition. */
interface Lane {
  type: RefreshType;
  readonly fresh: ReadyJob[];
  /** Jobs blocked by a lock, to be retried at `retryAt`. */
  stuck: ReadyJob[];
  retryAt: number;
  pauseMs: number;
  isTableLocked: boolean;
  isBusy: boolean;
  readonly wake: Wake;
}

export const largestCommit = 500;
const firstPauseMs = 250;
const longestPauseMs = 1_500;
const probeEveryMs = 1_000;
/** How many lanes with a locked table may hold a connection: the pool is for lanes that progress. */
const lockedAtOnce = 2;

/**
 * Commits per data type, one at a time each, so that a type waiting for a lock delays no other. Answers blocked by a
 * lock stay here and are retried, while later ones proceed. A type whose whole table is locked should not be fetched:
 * see `lockedTypes`.
 */
export class CommitLanes {
  readonly #options: LanesOptions;
  readonly #lanes = new Map<string, Lane>();
  #probing = 0;

  constructor(options: LanesOptions) {
    this.#options = options;
    const onGiveUp = (): void => this.#lanes.forEach(({ wake }) => wake.wake());
    options.signal.addEventListener('abort', onGiveUp, { once: true });
  }

  /** The data types whose table is locked. */
  get lockedTypes(): ReadonlySet<number> {
    const locked = [...this.#lanes.values()].filter(({ isTableLocked }) => isTableLocked);
    return new Set(locked.filter(({ type }) => this.#options.isCurrent(type)).map(({ type }) => type.id));
  }

  /** How many jobs are blocked by a lock. */
  get stuckJobs(): number {
    let jobs = 0;
    for (const { stuck } of this.#lanes.values()) jobs += stuck.length;
    return jobs;
  }

  /** Commits the job's answer, together with others of its type that are ready. */
  add(type: RefreshType, ready: ReadyJob): void {
    const place = placeOf(type);
    const lane = this.#lanes.get(place) ?? newLane(type);
    this.#lanes.set(place, lane);
    lane.type = type;
    lane.fresh.push(ready);
    lane.wake.wake();
    if (!lane.isBusy) void this.#work(lane);
  }

  async #work(lane: Lane): Promise<void> {
    const { signal } = this.#options;
    lane.isBusy = true;
    // Batch answers that arrive in the same tick.
    await nextTurn();
    for (;;) {
      if (lane.isTableLocked && !signal.aborted) await this.#awaitTable(lane);
      else if (lane.fresh.length > 0) await this.#commit(lane, lane.fresh.splice(0, largestCommit));
      else if (lane.stuck.length === 0) break;
      else if (signal.aborted || performance.now() >= lane.retryAt) await this.#retry(lane, () => true);
      else await lane.wake.wait(lane.retryAt - performance.now());
    }
    lane.isBusy = false;
    this.#lanes.delete(placeOf(lane.type));
  }

  async #retry(lane: Lane, isMeant: (ready: ReadyJob) => boolean): Promise<void> {
    const batch = lane.stuck.filter(isMeant).slice(0, largestCommit);
    lane.stuck = lane.stuck.filter((ready) => !batch.includes(ready));
    if (batch.length > 0) await this.#commit(lane, batch);
  }

  async #commit(lane: Lane, batch: readonly ReadyJob[]): Promise<void> {
    const { commits, signal, before, after, failed } = this.#options;
    const { type } = lane;
    await before(type, batch);
    try {
      const { ended, stuck, isTableLocked, problems } = await commits.end(type, batch, signal);
      await failpoint('worker.after-end');
      for (const problem of problems) failed(new Error(problem));
      lane.stuck.push(...stuck);
      lane.pauseMs = ended.length > 0 ? firstPauseMs : Math.min(lane.pauseMs * 2, longestPauseMs);
      lane.retryAt = performance.now() + lane.pauseMs;
      const kept = new Set(stuck.map(({ job }) => job.id));
      const left = batch.filter(({ job }) => !kept.has(job.id));
      if (isTableLocked) this.#lock(lane);
      after(type, { batch, left, ended });
    } catch (error) {
      failed(error);
      after(type, { batch, left: batch, ended: [] });
    }
  }

  /** Checks every second whether the table is free, then commits the waiting answers; gives up on late ones. */
  async #awaitTable(lane: Lane): Promise<void> {
    const { commits, onLock, isCurrent } = this.#options;
    const now = performance.now();
    lane.stuck.push(...lane.fresh.splice(0).map((ready) => ({ ...ready, stuckSince: now })));
    await lane.wake.wait(probeEveryMs);
    if (this.#options.signal.aborted || this.#probing >= lockedAtOnce) return;
    this.#probing++;
    const isLeft = lane.stuck.length === 0 && !isCurrent(lane.type);
    const isFree = isLeft || (await commits.mayWrite(lane.type).catch(() => false));
    if (isFree) {
      lane.isTableLocked = false;
      lane.retryAt = 0;
      onLock(lane.type, false);
    } else {
      if (isCurrent(lane.type)) onLock(lane.type, true);
      await this.#retry(lane, ({ stuckSince = now }) => performance.now() - stuckSince > lockPatienceMs);
    }
    this.#probing--;
  }

  #lock(lane: Lane): void {
    if (lane.isTableLocked) return;
    lane.isTableLocked = true;
    this.#options.onLock(lane.type, true);
  }
}

/** Answers fetched under different definitions of a data type are not written together. */
function placeOf({ id, definition }: RefreshType): string {
  return `${id} ${definition}`;
}

function newLane(type: RefreshType): Lane {
  const empty = { fresh: [], stuck: [], isBusy: false, isTableLocked: false };
  return { ...empty, type, retryAt: 0, pauseMs: firstPauseMs, wake: new Wake() };
}
