import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { performance } from 'node:perf_hooks';
import type { DataType } from '../config/index.ts';
import { Listener, type Database } from '../database/index.ts';
import { asPgfreshError, problemOf } from '../errors/index.ts';
import type { EventOf, Events } from '../events/index.ts';
import { Backoff, every, failpoint, hasFailpoints, Service, Wake, within } from '../lifecycle/index.ts';
import { Lease } from '../process/index.ts';
import { Queue, workerRegistration, type ClaimedJob, type WorkerAnswer } from '../queue/index.ts';
import {
  Commits,
  evictRows,
  holdIfAsked,
  outcomes,
  readCatalog,
  Refresher,
  type Catalog,
  type EndedJob,
  type Fetched,
  type ReadyJob,
  type RefreshType,
} from '../refresh/index.ts';
import { Clients, type Source } from './clients.ts';
import { CommitLanes, largestCommit, type LaneEnds } from './commit-lanes.ts';

export interface WorkerOptions {
  readonly db: Database;
  /** The URL of the same database: the lease has its own connection. */
  readonly url: string;
  /** A URL where LISTEN works, if any; new jobs are also found by polling. */
  readonly listenUrl: string | undefined;
  readonly events: Events;
  readonly sources: readonly Source[];
  readonly dataTypes: readonly DataType[];
  /** Limits the worker to these data types. */
  readonly types?: readonly string[] | undefined;
  readonly concurrency: number;
  readonly drainMs: number;
  /** Its name in the queue and the history; defaults to host and process id. */
  readonly workerName?: string | undefined;
}

type WorkerLease = Lease<WorkerAnswer>;

interface Held {
  readonly job: ClaimedJob;
  readonly lease: WorkerLease;
}

const pollMs = { soon: 200, idle: 500 };
const catalogEveryMs = 5_000;
const recoverEveryMs = 1_000;
const evictEveryMs = 60_000;
/** Keeps workers from polling and recovering at the same moment. */
const jitter = 0.1;
const patienceMs = 1_500;
/** Grace for late ends: longer than a commit waits for a lock, because calls not booked by then never are. */
const lateMs = 4_000;

/**
 * The loop that connects queue, sources and refresh. Its state is also in the database, so a crash loses nothing: jobs
 * return to the queue when the lease ends. Any number of processes may run it.
 */
export class Worker extends Service {
  readonly name = 'worker';
  readonly #options: WorkerOptions;
  readonly #workerName: string;
  readonly #queue = new Queue();
  readonly #clients: Clients;
  readonly #refresher: Refresher;
  readonly #listener: Listener | undefined;
  readonly #work = new Wake();
  readonly #held = new Map<number, Held>();
  readonly #lanes: CommitLanes;
  readonly #knownLocks = new Set<number>();
  #fetching = 0;
  /** Jobs whose answers were refused and are not recorded yet. */
  readonly #unrecorded = new Set<number>();
  /** Whether the next claim waits for a fetch to finish. */
  #isFull = false;
  /** Aborted when the time to stop is up: fetches end, and commits are not repeated. */
  readonly #giveUp = new AbortController();
  /** Claims whose response is pending. */
  readonly #asked = new Set<string>();
  /** Claims without a response; they may have been made anyway. */
  readonly #unanswered = new Map<string, WorkerLease>();
  #lease: WorkerLease;
  #catalog: Catalog | undefined;
  #reading: Promise<void> | undefined;
  #readAt = 0;
  /** What the queue was last told. */
  #served = '';
  #loops: Promise<unknown> | undefined;
  #emptied = Promise.withResolvers<void>();

  constructor(options: WorkerOptions) {
    super();
    const { db, listenUrl, events, sources } = options;
    this.#options = options;
    this.#workerName = options.workerName ?? `${hostname()}:${process.pid}`;
    this.#lanes = new CommitLanes({
      commits: new Commits(db, this.#queue),
      signal: this.#giveUp.signal,
      before: (type, batch) => this.#hold(type, batch),
      after: (type, ends) => this.#ended(type, ends),
      failed: (error) => this.#failed('end', error),
      onLock: (type, isLocked) => this.#noteLock(type, isLocked),
      isCurrent: ({ id, definition }) => this.#catalog?.types.get(id)?.definition === definition,
    });
    const now = (): Date => this.#now();
    this.#clients = new Clients(sources, { db, events, now });
    this.#refresher = new Refresher({ clientOf: (type) => this.#clients.of(type), now });
    if (listenUrl !== undefined) {
      const onNotification = (): void => this.#work.wake();
      const channel = 'pgfresh_job';
      this.#listener = new Listener({ url: listenUrl, events, channel, onNotification, isOptional: true });
    }
    this.#lease = this.#newLease();
  }

  protected async onStart(): Promise<void> {
    await this.#readCatalog();
    await failpoint('worker.after-catalog');
    await this.#lease.start();
    await this.#tellServed();
    await failpoint('worker.after-register');
    await this.#listener?.start();
    const types = [...this.#catalog!.types.values()].map(({ name }) => name);
    const name = this.#workerName;
    this.#options.events.emit({ type: 'worker.started', worker: this.#lease.id, name, types });
    this.#loops = Promise.all([
      every(pollMs.idle, () => this.#claimFree(), {
        ...this.#loop('claim'),
        wake: this.#work,
        now: true,
        backoff: new Backoff(50, 1_000),
      }),
      every(catalogEveryMs, () => this.#renewCatalog(), { ...this.#loop('catalog'), jitter }),
      every(recoverEveryMs, () => this.#recover(), { ...this.#loop('recovery'), jitter }),
      every(evictEveryMs, () => this.#evict(), { ...this.#loop('eviction'), jitter, now: true }),
    ]);
  }

  /** Finishes running jobs, or puts them back when the time is up. */
  protected async onStop(): Promise<void> {
    // A pending claim may still bring jobs. But an unresponsive database must not keep the process from stopping.
    await within(patienceMs, this.#loops);
    const held = this.#held.size;
    await failpoint('worker.before-drain');
    await within(Math.max(0, this.#options.drainMs - this.stoppingForMs), this.#idle());
    const late = this.#held.size;
    this.#giveUp.abort();
    if (late > 0) await within(lateMs, this.#idle());
    await failpoint('worker.before-retire');
    // Jobs that could not be put back return to the queue when the lease ends.
    const ended = Promise.all([this.#lease.stop(), this.#listener?.stop()]).catch(() => {});
    await within(patienceMs, ended);
    await this.#clients.close();
    const ms = this.stoppingForMs;
    this.#options.events.emit({ type: 'worker.drained', finished: held - late, putBack: late, ms });
  }

  #loop(step: EventOf<'worker.failed'>['step']): { signal: AbortSignal; failed: (error: unknown) => void } {
    return { signal: this.stopSignal, failed: (error) => this.#failed(step, error) };
  }

  /** Claims as many jobs as there is room for, and returns when to claim again. */
  async #claimFree(): Promise<number> {
    const free = this.#free();
    this.#isFull = free === 0;
    if (this.#isFull) return pollMs.idle;
    const claimed = await this.#claim(free);
    if (claimed === free) return 0;
    // A worker that got fewer jobs than it asked for is woken by new ones. Jobs that become ready by time wake no one.
    return claimed > 0 ? pollMs.soon : pollMs.idle;
  }

  /**
   * How many jobs to claim. Jobs waiting for their commit do not count, so that fetches and commits overlap. A refused
   * answer counts until it is recorded, because the record may pause its API key, type or source.
   */
  #free(): number {
    const { concurrency } = this.#options;
    const busy = this.#fetching + this.#unrecorded.size;
    // Jobs blocked by a lock must not hold up the others.
    const held = this.#held.size - this.#lanes.stuckJobs;
    const free = Math.min(concurrency - busy, concurrency + largestCommit - held);
    // At least a quarter at a time, so that a claim is worth its round trip.
    return free < Math.ceil(concurrency / 4) ? 0 : free;
  }

  async #claim(limit: number): Promise<number> {
    // Captured now: the catalog may change before the jobs arrive.
    const { types } = this.#catalog!;
    const { lockedTypes } = this.#lanes;
    const claimable = [...types.keys()].filter((id) => !lockedTypes.has(id));
    if (claimable.length === 0) return 0;
    const lease = await this.#livingLease();
    await this.#releaseUnanswered();
    const request = randomUUID();
    // Registered before it is sent, so that the renewal does not report a pending claim as stranded.
    lease.hold(request, 1);
    this.#asked.add(request);
    let jobs: readonly ClaimedJob[] = [];
    try {
      await failpoint('worker.before-claim');
      ({ jobs } = await this.#queue.claim(this.#options.db, {
        worker: lease.id,
        limit,
        types: claimable,
        request,
        alone: true,
      }));
      await failpoint('worker.after-claim');
    } catch (error) {
      const { code } = asPgfreshError(error);
      if (code === 'PGF_LEASE_LOST') lease.lose();
      if (code === 'PGF_COMMIT_UNKNOWN') this.#unanswered.set(request, lease);
      throw error;
    } finally {
      if (jobs.length === 0) lease.ended(request, 1);
      else lease.hold(request, jobs.length);
      // Claimed jobs that were not called yet go back when stopping. That is free, while a call costs money.
      const mayBegin = (): boolean => !this.stopSignal.aborted && !lease.lost.aborted;
      for (const job of jobs) void this.#run({ job, lease }, types.get(job.type), mayBegin);
      this.#asked.delete(request);
    }
    return jobs.length;
  }

  async #releaseUnanswered(): Promise<void> {
    for (const [request, { id }] of this.#unanswered) {
      await this.#options.db.query('select pgfresh_engine.release_claim($1::bigint, $2::uuid)', [id, request]);
      this.#unanswered.delete(request);
    }
  }

  /** Claims made since the renewal was sent are not stranded. */
  async #releaseStranded(lease: WorkerLease, stranded: readonly string[]): Promise<void> {
    const known = new Set([...this.#asked, ...[...this.#held.values()].map(({ job }) => job.request)]);
    for (const request of stranded) if (!known.has(request)) this.#unanswered.set(request, lease);
    await this.#releaseUnanswered();
  }

  async #livingLease(): Promise<WorkerLease> {
    const { events } = this.#options;
    if (!this.#lease.lost.aborted) return this.#lease;
    // Jobs claimed under the old lease are ended by their fence, or not at all.
    const old = this.#lease;
    events.emit({ type: 'worker.lease_lost', worker: old.id, name: this.#workerName });
    await old.stop().catch(() => {});
    const lease = this.#newLease();
    await lease.startUnless(this.stopSignal);
    this.#lease = lease;
    await this.#tellServed();
    return lease;
  }

  #newLease(): WorkerLease {
    const lease: WorkerLease = new Lease({
      url: this.#options.url,
      registration: workerRegistration(this.#workerName),
      onAnswer: ({ stranded, stop }) => {
        if (stop) this.#options.events.emit({ type: 'process.outdated' });
        void this.#releaseStranded(lease, stranded).catch((error: unknown) => this.#failed('lease', error));
      },
    });
    return lease;
  }

  async #run(held: Held, known: RefreshType | undefined, mayBegin: () => boolean): Promise<void> {
    const { job } = held;
    this.#held.set(job.id, held);
    try {
      let type: RefreshType | undefined;
      let fetched: Fetched | undefined;
      this.#fetching++;
      try {
        // Do not fetch if the data type is unknown here or was redefined since the claim.
        type = fits(known, job) ? known : await this.#typeOf(job);
        if (type && hasFailpoints) await failpoint('worker.before-start');
        const { id, key, metadata, apiKey, sendBy } = job;
        const wanted = { id, key, metadata, apiKey, sendBy, mayBegin };
        if (type) fetched = await this.#refresher.fetch(type, wanted, this.#giveUp.signal);
        if (fetched && 'refusal' in fetched) this.#unrecorded.add(id);
      } finally {
        this.#fetching--;
        if (this.#isFull && this.#free() > 0) this.#work.wake();
      }
      if (!type || !fetched) {
        await this.#putBack(job);
        return this.#release([job.id]);
      }
      if (hasFailpoints) await failpoint('worker.before-ready');
      this.#lanes.add(type, { job, fetched });
    } catch (error) {
      this.#failed('end', error);
      this.#release([job.id]);
    }
  }

  /** Before the jobs end, so that one that is put back is not claimed again at once. */
  async #hold(type: RefreshType, batch: readonly ReadyJob[]): Promise<void> {
    const answers = batch.map(({ fetched }) => fetched);
    await holdIfAsked(this.#options.db, type, answers).catch((error: unknown) => this.#failed('hold', error));
  }

  #ended(type: RefreshType, { batch, left, ended }: LaneEnds): void {
    for (const one of ended) this.#options.events.emit(endedEvent(type, one));
    for (const { job } of batch) this.#unrecorded.delete(job.id);
    this.#release(left.map(({ job }) => job.id));
  }

  /** A type whose table is locked is not claimed, and the planner is told. */
  #noteLock(type: RefreshType, locked: boolean): void {
    const { events } = this.#options;
    if (locked !== this.#knownLocks.has(type.id)) events.emit({ type: 'worker.locked', dataType: type.name, locked });
    if (locked) this.#knownLocks.add(type.id);
    else this.#knownLocks.delete(type.id);
    this.#work.wake();
    if (!locked) return;
    const note = 'select pgfresh_engine.note_type_timeout($1::int, $2::text, $3::text)';
    void this.#options.db
      .query(note, [type.id, 'commit', `${type.table.name} is locked`])
      .catch((error: unknown) => this.#failed('end', error));
  }

  #release(jobs: readonly number[]): void {
    const released = jobs.flatMap((id) => this.#held.get(id) ?? []);
    for (const id of jobs) this.#held.delete(id);
    for (const [request, ended] of Map.groupBy(released, ({ job }) => job.request)) {
      ended[0]!.lease.ended(request, ended.length);
    }
    if (this.#held.size === 0) this.#emptied.resolve();
    this.#work.wake();
  }

  async #idle(): Promise<void> {
    while (this.#held.size > 0) {
      this.#emptied = Promise.withResolvers();
      await this.#emptied.promise;
    }
  }

  /** The data type as of the claim; the catalog may be older. */
  async #typeOf(job: ClaimedJob): Promise<RefreshType | undefined> {
    // A read already under way may have begun before the claim.
    for (let reads = 0; reads < 2; reads++) {
      await this.#readAnew();
      const type = this.#catalog!.types.get(job.type);
      if (fits(type, job)) return type;
    }
    return undefined;
  }

  async #putBack({ id, attempt, request }: ClaimedJob): Promise<void> {
    const reason = { outcome: 'redefined', error: 'its data type was changed before it was fetched' };
    await this.#queue.putBack(this.#options.db, [{ id, attempt, request, bytes: 0, calls: 0 }], reason);
  }

  async #readCatalog(): Promise<void> {
    const { db, types, events } = this.#options;
    const before = new Set(this.#catalog?.problems.map(({ type, problem }) => `${type} ${problem}`));
    this.#catalog = await readCatalog(db, this.#options, { only: types });
    this.#readAt = performance.now();
    for (const { type, problem, next } of this.#catalog.problems) {
      if (before.has(`${type} ${problem}`)) continue;
      events.emit({ type: 'warning', code: 'type_unwritable', subject: type, message: `${type}: ${problem}`, next });
    }
  }

  /** One read at a time, so that an older result cannot replace a newer one. */
  #readAnew(): Promise<void> {
    this.#reading ??= this.#readCatalog().finally(() => (this.#reading = undefined));
    return this.#reading;
  }

  async #renewCatalog(): Promise<void> {
    await this.#readAnew();
    await this.#tellServed();
  }

  /** Tells the queue which types this worker refreshes, whenever that changes. */
  async #tellServed(): Promise<void> {
    const { types, fetchers } = this.#catalog!;
    const { sources, types: limitedTo = null } = this.#options;
    const apiKeys = sources.flatMap(({ name, apiKeys: { length } }) => (length > 0 ? [[name, length] as const] : []));
    const served = [this.#lease.id, [...types.keys()], fetchers, limitedTo, Object.fromEntries(apiKeys)];
    if (JSON.stringify(served) === this.#served) return;
    const serve = 'select pgfresh_engine.serve_types($1::bigint, $2::int[], $3::text[], $4::text[], $5::jsonb)';
    await this.#options.db.query(serve, served);
    this.#served = JSON.stringify(served);
  }

  async #recover(): Promise<void> {
    await failpoint('worker.before-recover');
    await this.#options.db.query('select pgfresh.recover_stuck_jobs()');
  }

  /** Deletes rows of keys without viewers. Workers do this because they may write the tables. */
  async #evict(): Promise<void> {
    const { db, events } = this.#options;
    for (const type of this.#catalog!.types.values()) {
      if (!type.evicts || this.stopSignal.aborted) continue;
      try {
        const { keys, problem } = await evictRows(db, type, { signal: this.stopSignal });
        if (keys > 0) events.emit({ type: 'worker.evicted', dataType: type.name, keys });
        if (problem !== undefined) this.#notEvicted(type, problem);
      } catch (error) {
        // A table that cannot be written must not affect the others.
        this.#notEvicted(type, problemOf(error));
      }
    }
  }

  #notEvicted({ name }: RefreshType, problem: string): void {
    const next = 'See what refers to the rows, or holds them, and that the login of the worker may delete them.';
    const message = `rows of ${name} that nobody views could not be deleted: ${problem}`;
    this.#options.events.emit({ type: 'warning', code: 'rows_not_evicted', subject: name, message, next });
  }

  #now(): Date {
    return new Date(this.#catalog!.now.getTime() + performance.now() - this.#readAt);
  }

  #failed(step: EventOf<'worker.failed'>['step'], error: unknown): void {
    // An unrenewed lease ends by itself, and the next claim starts a new one.
    if (asPgfreshError(error).code === 'PGF_LEASE_LOST') return;
    this.#options.events.emit({ type: 'worker.failed', step, problem: problemOf(error) });
  }
}

/** Whether the job was claimed for this definition and source of its data type. */
function fits(type: RefreshType | undefined, job: ClaimedJob): type is RefreshType {
  return type?.definition === job.definition && type.sourceId === job.source;
}

function endedEvent(type: RefreshType, { job, outcome, cost, commitMs, error }: EndedJob): EventOf<'refresh.ended'> {
  const { name: dataType, source } = type;
  const ok = outcomes[outcome].verdict === 'complete';
  return { type: 'refresh.ended', dataType, key: job.key, source, outcome, ok, ...cost, commitMs, error };
}
