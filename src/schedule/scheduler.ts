import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { performance } from 'node:perf_hooks';
import type { JobHandler } from '../config/index.ts';
import { Database, failureOf, Listener, type Failure } from '../database/index.ts';
import { asPgfreshError, problemOf } from '../errors/index.ts';
import type { EventOf, Events } from '../events/index.ts';
import { Backoff, every, Service, Wake, within } from '../lifecycle/index.ts';
import { Lease } from '../process/index.ts';
import { ownHandlers, type BroughtWork } from './own-jobs.ts';
import { Run, type RunEnd } from './run.ts';
import { schedulerRegistration, type SchedulerAnswer } from './scheduler-lease.ts';
import { planSlots, type SlotPlan } from './slot-plan.ts';
import { SlotStore, type SkippedSlots, type TakenRun } from './slot-store.ts';

export interface SchedulerOptions {
  readonly db: Database;
  /** URL of the same database: runs and the lease use separate connections. */
  readonly url: string;
  /** URL where LISTEN works, if any; without it the database is polled more often. */
  readonly listenUrl: string | undefined;
  readonly events: Events;
  /** The handlers of the configuration, by name. */
  readonly handlers: ReadonlyMap<string, JobHandler>;
  /** If set, also runs pgfresh's own jobs, with the work that other rooms do. */
  readonly ownJobs?: BroughtWork | undefined;
  /** Maximum concurrent runs of users' jobs, and so of their connections. */
  readonly concurrency: number;
  /** Statement timeout for handlers, as for `db`. */
  readonly statementTimeoutMs?: number | undefined;
  readonly drainMs: number;
  /** Its name in the job history; default: host and process id. */
  readonly workerName?: string | undefined;
}

/** A part of the scheduler with its own run slots, so that long users' runs never block pgfresh's own jobs. */
interface Lane {
  readonly store: SlotStore;
  readonly handlers: ReadonlyMap<string, JobHandler>;
  /** Passed to the handlers. */
  readonly db: Database;
  readonly places: number;
  readonly runs: Set<Run>;
  readonly work: Wake;
  /** How long to wait when another scheduler is settling what is due. */
  contendedMs: number;
}

/** Maximum concurrent runs of pgfresh's own jobs: sweep, cleanup and rounds of scheduled data types. */
const ownPlaces = 3;
/** Maximum connections per handler. */
const handlerConnections = 4;
const slotsAtOnce = 500;
const keptMs = 1_000;
const pollMs = { listening: 10_000, deaf: 1_000, contended: 20, contendedForLong: 1_000 };
const patienceMs = 1_500;
const backoffMs = { first: 50, longest: 1_000 };

/**
 * The loop that finds due slots, decides about them and runs them. Decisions are
 * committed before anything runs, so a crash loses nothing. Any number of processes may run it.
 */
export class Scheduler extends Service {
  readonly name = 'scheduler';
  readonly #options: SchedulerOptions;
  readonly #lanes: readonly Lane[];
  /** Separate connections for users' code, so that it cannot exhaust or disturb ours. */
  readonly #handlersDb: Database;
  readonly #guests: Database;
  readonly #listener: Listener | undefined;
  /** Aborted at the stop deadline: ends are no longer recorded. */
  readonly #giveUp = new AbortController();
  #lease: Lease<SchedulerAnswer>;
  #replacing: Promise<Lease<SchedulerAnswer>> | undefined;
  /** Requests still waiting for an answer. */
  readonly #asked = new Set<string>();
  #scheduling: Promise<unknown> | undefined;
  #emptied = Promise.withResolvers<void>();

  constructor(options: SchedulerOptions) {
    super();
    const { db, url, listenUrl, events, concurrency, handlers, ownJobs, statementTimeoutMs = 30_000 } = options;
    this.#options = options;
    this.#handlersDb = new Database({
      url,
      events,
      applicationName: 'pgfresh handlers',
      // A run that uses all of its own leaves one for each of the others.
      poolSize: concurrency + handlerConnections - 1,
      statementTimeoutMs,
      isForUsers: true,
    });
    this.#guests = new Database({
      url,
      events,
      applicationName: 'pgfresh jobs',
      poolSize: concurrency,
      pipelined: true,
    });
    this.#lanes = [
      this.#newLane(handlers, { functions: true, db: this.#handlersDb, places: concurrency }),
      ...(ownJobs ? [this.#newLane(ownHandlers(ownJobs), { functions: false, db, places: ownPlaces })] : []),
    ];
    if (listenUrl !== undefined) {
      const onNotification = (payload: string): void => (payload === 'cancel' ? this.#lease.hurry() : this.#wake());
      const channel = 'pgfresh_schedule';
      this.#listener = new Listener({ url: listenUrl, events, channel, onNotification, isOptional: true });
    }
    this.#lease = this.#newLease();
  }

  protected async onStart(): Promise<void> {
    if (this.#options.ownJobs) await this.#options.db.query('select pgfresh_engine.sync_own_jobs()');
    await this.#lease.start();
    this.#begin(this.#lease);
    await this.#listener?.start();
    this.#scheduling = Promise.all(
      this.#lanes.map((lane) =>
        every(pollMs.deaf, () => this.#schedule(lane), {
          signal: this.stopSignal,
          wake: lane.work,
          now: true,
          backoff: new Backoff(backoffMs.first, backoffMs.longest),
          failed: (error) => {
            // The lease reports it itself, and the next look acquires another.
            if (asPgfreshError(error).code !== 'PGF_LEASE_LOST') this.#failed('slots', error);
          },
        }),
      ),
    );
  }

  /** Finishes runs under way, or hands them over at the deadline. */
  protected async onStop(): Promise<void> {
    await within(patienceMs, this.#scheduling);
    const held = this.#runs().length;
    await within(Math.max(0, this.#options.drainMs - this.stoppingForMs), this.#idle());
    const late = this.#runs();
    for (const run of late) run.stop('lost');
    if (late.length > 0) await within(patienceMs, this.#idle());
    this.#giveUp.abort();
    const services = [this.#lease.stop(), this.#listener?.stop() ?? Promise.resolve()];
    const ended = Promise.all([...services, this.#guests.close(), this.#handlersDb.close()]).catch(() => {});
    await within(patienceMs, ended);
    const ms = this.stoppingForMs;
    const handedOver = late.length;
    this.#options.events.emit({ type: 'scheduler.drained', finished: held - handedOver, handedOver, ms });
  }

  #newLane(
    handlers: ReadonlyMap<string, JobHandler>,
    { functions, db, places }: { functions: boolean; db: Database; places: number },
  ): Lane {
    const store = new SlotStore(this.#options.db, { handlers: [...handlers.keys()], functions });
    return { store, handlers, db, places, runs: new Set(), work: new Wake(), contendedMs: pollMs.contended };
  }

  #newLease(): Lease<SchedulerAnswer> {
    const { url, workerName = `${hostname()}:${process.pid}` } = this.#options;
    const lease: Lease<SchedulerAnswer> = new Lease({
      url,
      registration: schedulerRegistration(workerName, this.#handlerNames()),
      onAnswer: (answer) => {
        if (answer.stop) this.#options.events.emit({ type: 'process.outdated' });
        void this.#heed(lease, answer).catch((error: unknown) => this.#failed('heartbeat', error));
      },
    });
    return lease;
  }

  #handlerNames(): string[] {
    return this.#lanes.flatMap(({ handlers }) => [...handlers.keys()]);
  }

  #begin(lease: Lease<SchedulerAnswer>): void {
    lease.lost.addEventListener('abort', () => this.#loseLease(lease), { once: true });
    this.#lease = lease;
    if (lease.lost.aborted) this.#loseLease(lease);
    this.#options.events.emit({ type: 'scheduler.started', scheduler: lease.id, handlers: this.#handlerNames() });
  }

  /** Runs under an old lease belong to others; the next look acquires a new one. */
  async #livingLease(): Promise<Lease<SchedulerAnswer>> {
    if (!this.#lease.lost.aborted) return this.#lease;
    this.#replacing ??= this.#replace().finally(() => (this.#replacing = undefined));
    return this.#replacing;
  }

  async #replace(): Promise<Lease<SchedulerAnswer>> {
    await this.#lease.stop().catch(() => {});
    const lease = this.#newLease();
    await lease.startUnless(this.stopSignal);
    this.#begin(lease);
    return lease;
  }

  #loseLease(lease: Lease<SchedulerAnswer>): void {
    if (this.#giveUp.signal.aborted) return;
    this.#options.events.emit({ type: 'scheduler.lease_lost', scheduler: lease.id });
    for (const run of this.#runs()) if (run.lease === lease) run.stop('lost');
    this.#wake();
  }

  /** Settles due slots; returns how long until the next. */
  async #schedule(lane: Lane): Promise<number> {
    const { store } = lane;
    await this.#untilRoom(lane);
    if (this.stopSignal.aborted) return 0;
    await this.#take(lane, (asking) => store.takeWaiting(asking, roomOf(lane)));
    if (this.stopSignal.aborted) return 0;
    const due = await store.dueSlots(slotsAtOnce);
    const { settling = [], running = [] } = Object.groupBy(due.map(planSlots), ({ runs }) =>
      runs.length === 0 ? 'settling' : 'running',
    );
    if (this.stopSignal.aborted) return 0;
    if (settling.length > 0) await this.#take(lane, (asking) => store.settleSlots(asking, settling, 0));
    // The read stays usable for a while: the database skips what others have settled since.
    const readAt = performance.now();
    shuffle(running);
    while (running.length > 0 && performance.now() - readAt < keptMs) {
      await this.#untilRoom(lane);
      if (this.stopSignal.aborted) return 0;
      const room = roomOf(lane);
      await this.#take(lane, (asking) => store.settleSlots(asking, running.splice(0, room), room));
    }
    if (due.length === slotsAtOnce || running.length > 0) return 0;
    const ms = await store.pause();
    // Due, but another scheduler settled it, is settling it, or has newer time zone data.
    const isContended = ms <= 0 && due.length === 0;
    lane.contendedMs = isContended ? Math.min(lane.contendedMs * 2, pollMs.contendedForLong) : pollMs.contended;
    return Math.min(this.#pollMs, ms > 0 ? Math.ceil(ms) : lane.contendedMs);
  }

  /** Settles when there is room for a run. */
  async #untilRoom(lane: Lane): Promise<void> {
    while (roomOf(lane) <= 0 && !this.stopSignal.aborted) await lane.work.wait(this.#pollMs, this.stopSignal);
  }

  /** Claims runs and starts them. The request is named before it is sent, so that a lost answer can be recovered. */
  async #take(
    lane: Lane,
    ask: (asking: { scheduler: number; request: string }) => Promise<(TakenRun | SkippedSlots)[]>,
  ): Promise<void> {
    const lease = await this.#livingLease();
    const request = randomUUID();
    lease.hold(request, 1);
    this.#asked.add(request);
    let answer: (TakenRun | SkippedSlots)[] = [];
    try {
      answer = await ask({ scheduler: lease.id, request });
    } catch (error) {
      // Only this one: another part may have acquired a new one since.
      if (asPgfreshError(error).code === 'PGF_LEASE_LOST') lease.lose();
      throw error;
    } finally {
      this.#asked.delete(request);
      const runs = answer.filter(({ run }) => run !== null);
      if (runs.length === 0) lease.ended(request, 1);
      else lease.hold(request, runs.length);
    }
    for (const one of answer) {
      if (one.run === null) {
        const { name: job, skipped: reason, occurrences: count } = one;
        this.#options.events.emit({ type: 'job.skipped', job, reason, count });
      } else void this.#run(lane, new Run(one, lease, request));
    }
  }

  async #run(lane: Lane, run: Run): Promise<void> {
    const { taken, lease, request } = run;
    const since = performance.now();
    lane.runs.add(run);
    try {
      const { events } = this.#options;
      const { db, handlers } = lane;
      // A stopping process starts nothing: runs it was still given have their next attempt elsewhere.
      if (lease.lost.aborted || this.stopSignal.aborted) run.stop('lost');
      const end = await run.do({ guests: this.#guests, db, connections: handlerConnections, events, handlers });
      const isOurs = end.recorded || (await this.#record(lane, run, end));
      const ms = performance.now() - since;
      if (isOurs) events.emit(endedEvent(taken, end, ms));
    } catch (error) {
      this.#failed('end', error);
    } finally {
      lane.runs.delete(run);
      lease.ended(request, 1);
      if (this.#runs().length === 0) this.#emptied.resolve();
      lane.work.wake();
    }
  }

  /**
   * Records the end of a run, retrying while the lease is ours. An end that the database refuses is not repeated:
   * the details are left out, and if that does not help, the run has failed. If even that is refused,
   * the run is no longer listed as held, and its next attempt starts.
   */
  async #record({ store }: Lane, { taken, lease }: Run, { verdict, result }: RunEnd): Promise<boolean> {
    let { details } = result;
    for (const backoff = new Backoff(backoffMs.first, backoffMs.longest); ;) {
      try {
        return await store.end(taken, lease.id, verdict, { ...result, details });
      } catch (error) {
        this.#failed('end', error);
        if (!mayPass(error)) {
          if (details === undefined) return store.end(taken, lease.id, 'failed', unrecorded(error));
          details = undefined;
          continue;
        }
        if (this.#giveUp.signal.aborted || lease.lost.aborted) return false;
        await backoff.pause(this.#giveUp.signal);
      }
    }
  }

  /** Acts on the answer to a renewal. */
  async #heed(lease: Lease<SchedulerAnswer>, { dead, cancel, stranded }: SchedulerAnswer): Promise<void> {
    for (const run of this.#runs()) if (cancel.includes(run.taken.run)) run.stop('cancelled');
    const { store } = this.#lanes[0]!;
    const held = new Set(this.#runs().map(({ taken }) => taken.run));
    // The list sent with the renewal may be older than our current requests.
    for (const one of stranded.filter(({ run, request }) => !held.has(run) && !this.#asked.has(request))) {
      await store.end(one, lease.id, 'lost', { message: 'its scheduler was never told that it has this run' });
    }
    if (stranded.length > 0) this.#wake();
    // A stopping process takes nothing over.
    if (dead === 0 || this.stopSignal.aborted) return;
    const runs = await store.recover(lease.id);
    if (runs > 0) this.#options.events.emit({ type: 'scheduler.recovered', runs });
    this.#wake();
  }

  /** Maximum time between two looks. */
  get #pollMs(): number {
    return this.#listener?.isConnected ? pollMs.listening : pollMs.deaf;
  }

  #runs(): Run[] {
    return this.#lanes.flatMap(({ runs }) => [...runs]);
  }

  #wake(): void {
    for (const { work } of this.#lanes) work.wake();
  }

  async #idle(): Promise<void> {
    while (this.#runs().length > 0) {
      this.#emptied = Promise.withResolvers();
      await this.#emptied.promise;
    }
  }

  #failed(step: EventOf<'scheduler.failed'>['step'], error: unknown): void {
    this.#options.events.emit({ type: 'scheduler.failed', step, problem: problemOf(error) });
  }
}

function roomOf({ places, runs }: Lane): number {
  return places - runs.size;
}

function endedEvent(taken: TakenRun, { verdict, result }: RunEnd, ms: number): EventOf<'job.ended'> {
  const { name: job, run, slot, attempt, triggeredBy, latenessMs } = taken;
  const { message } = result;
  return { type: 'job.ended', job, run, slot, attempt, triggeredBy, outcome: verdict, message, ms, latenessMs };
}

/** Shuffled, so that schedulers that read the same list start with different jobs. */
function shuffle(plans: SlotPlan[]): void {
  for (let last = plans.length - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1));
    [plans[last], plans[other]] = [plans[other]!, plans[last]!];
  }
}

const passing: ReadonlySet<Failure> = new Set([
  'connection',
  'deadlock',
  'serialization',
  'lock_timeout',
  'statement_timeout',
  'resources',
  'readonly',
  'login',
]);

/** Whether the database might accept the same later. */
function mayPass(error: unknown): boolean {
  return passing.has(failureOf(error)) || asPgfreshError(error).code === 'PGF_COMMIT_UNKNOWN';
}

function unrecorded(error: unknown): { message: string } {
  return { message: `its end could not be recorded: ${problemOf(error)}`.slice(0, 4_000) };
}
