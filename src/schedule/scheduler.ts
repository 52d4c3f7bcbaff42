import { hostname } from 'node:os';
import { performance } from 'node:perf_hooks';
import { setTimeout as wait } from 'node:timers/promises';
import type { JobHandler } from '../config/index.ts';
import { Database, failureOf, Listener, type Failure } from '../database/index.ts';
import { asPgfreshError, PgfreshError, problemOf } from '../errors/index.ts';
import type { EventOf, Events } from '../events/index.ts';
import { Service, Wake } from '../lifecycle/index.ts';
import { ownHandlers, type BroughtWork } from './own-jobs.ts';
import { Run, type RunEnd, type RunOptions } from './run.ts';
import { planSlots, type SlotPlan } from './slot-plan.ts';
import { SlotStore, type SkippedSlots, type TakenRun } from './slot-store.ts';

export interface SchedulerOptions {
  readonly db: Database;
  /** The address of the same database: runs and notifications have connections of their own. */
  readonly url: string;
  readonly events: Events;
  /** The handlers of the configuration, by name. */
  readonly handlers: ReadonlyMap<string, JobHandler>;
  /** If it also does what pgfresh itself has to do at set times: what other rooms do of it. */
  readonly ownJobs?: BroughtWork | undefined;
  /** Runs at the same time, and by that connections for them. */
  readonly concurrency: number;
  readonly drainMs: number;
  /** Its name in the runs of jobs; host and process id if it is left out. */
  readonly workerName?: string | undefined;
}

const slotsAtOnce = 500;
const keptMs = 1_000;
const pollMs = { listening: 10_000, deaf: 1_000, contended: 20 };
const heartbeatMs = 4_000;
const patienceMs = 1_500;
const longestPauseMs = 1_000;

/**
 * The loop that finds slots whose time has come, decides about them, and runs what is to be run. What it has decided is
 * in the database before anything runs, so a crash loses nothing. Any number of processes may run it.
 */
export class Scheduler extends Service {
  readonly name = 'scheduler';
  readonly #options: SchedulerOptions;
  readonly #handlers: ReadonlyMap<string, JobHandler>;
  readonly #store: SlotStore;
  readonly #guests: Database;
  readonly #listener: Listener;
  readonly #work = new Wake();
  readonly #beat = new Wake();
  readonly #runs = new Set<Run>();
  /** Aborted when time is up: ends are not recorded any more. */
  readonly #giveUp = new AbortController();
  #id: number | undefined;
  #pollMs = pollMs.deaf;
  #scheduling: Promise<void> | undefined;
  #beating: Promise<void> | undefined;
  #emptied = Promise.withResolvers<void>();

  constructor(options: SchedulerOptions) {
    super();
    const { db, url, events, concurrency } = options;
    this.#options = options;
    this.#handlers = new Map([...options.handlers, ...(options.ownJobs ? ownHandlers(options.ownJobs) : [])]);
    this.#store = new SlotStore(db, [...this.#handlers.keys()]);
    this.#guests = new Database({
      url,
      events,
      applicationName: 'pgfresh jobs',
      poolSize: concurrency,
      pipelined: true,
    });
    this.#listener = new Listener({
      url,
      events,
      channel: 'pgfresh_schedule',
      onNotification: (payload) => (payload === 'cancel' ? this.#beat.wake() : this.#work.wake()),
    });
    this.stopSignal.addEventListener('abort', () => this.#work.wake(), { once: true });
  }

  protected async onStart(): Promise<void> {
    if (this.#options.ownJobs) await this.#options.db.query('select pgfresh.sync_own_jobs()');
    await this.#register();
    // Without notifications, for instance behind a pooler, polling is enough.
    await this.#listener.start().then(
      () => (this.#pollMs = pollMs.listening),
      (error: unknown) => this.#failed('listen', error),
    );
    this.#scheduling = this.#scheduleUntilStopped();
    this.#beating = this.#beatUntilIdle();
  }

  /** Finishes what is under way, or hands it over when the time is up. */
  protected async onStop(): Promise<void> {
    await within(patienceMs, this.#scheduling);
    const held = this.#runs.size;
    await within(this.#options.drainMs - this.stoppingForMs, this.#idle());
    const late = this.#runs.size;
    for (const run of this.#runs) run.stop('lost');
    if (late > 0) await within(patienceMs, this.#idle());
    this.#giveUp.abort();
    this.#beat.wake();
    await within(patienceMs, this.#beating);
    const retiring = this.#id === undefined ? undefined : this.#store.retire(this.#id);
    await within(patienceMs, Promise.all([retiring, this.#listener.stop(), this.#guests.close()]));
    const ms = this.stoppingForMs;
    this.#options.events.emit({ type: 'scheduler.drained', finished: held - late, handedOver: late, ms });
  }

  async #register(): Promise<number> {
    const { workerName = `${hostname()}:${process.pid}` } = this.#options;
    const id = await this.#store.register(workerName);
    this.#id = id;
    this.#options.events.emit({
      type: 'scheduler.started',
      scheduler: id,
      handlers: [...this.#handlers.keys()],
    });
    return id;
  }

  async #scheduleUntilStopped(): Promise<void> {
    let pause = 50;
    while (!this.stopSignal.aborted) {
      try {
        const ms = await this.#schedule();
        pause = 50;
        if (ms > 0) await this.#work.wait(ms);
      } catch (error) {
        if (this.stopSignal.aborted) return;
        if (asPgfreshError(error).code === 'PGF_LEASE_LOST') this.#loseLease();
        else this.#failed('slots', error);
        await this.#work.wait(pause);
        pause = Math.min(pause * 2, longestPauseMs);
      }
    }
  }

  /** Settles what is due, and says how long nothing will be. */
  async #schedule(): Promise<number> {
    const id = this.#id ?? (await this.#register());
    await this.#untilRoom();
    if (this.stopSignal.aborted) return 0;
    this.#startAll(await this.#store.takeWaiting(id, this.#room()), id);
    if (this.stopSignal.aborted) return 0;
    const due = await this.#store.dueSlots(slotsAtOnce);
    const { settling = [], running = [] } = Object.groupBy(due.map(planSlots), ({ runs }) =>
      runs.length === 0 ? 'settling' : 'running',
    );
    if (this.stopSignal.aborted) return 0;
    if (settling.length > 0) this.#startAll(await this.#store.settleSlots(id, settling, 0), id);
    // What was read is good for a while: whatever somebody else has settled meanwhile is left out by the database.
    const readAt = performance.now();
    shuffle(running);
    while (running.length > 0 && performance.now() - readAt < keptMs) {
      await this.#untilRoom();
      if (this.stopSignal.aborted) return 0;
      const room = this.#room();
      this.#startAll(await this.#store.settleSlots(id, running.splice(0, room), room), id);
    }
    if (due.length === slotsAtOnce || running.length > 0) return 0;
    const ms = await this.#store.pause();
    // Due, but somebody else was faster or is at it.
    return Math.min(this.#pollMs, ms > 0 ? Math.ceil(ms) : pollMs.contended);
  }

  #room(): number {
    return this.#options.concurrency - this.#runs.size;
  }

  /** Settles when there is room for a run. */
  async #untilRoom(): Promise<void> {
    while (this.#room() <= 0 && !this.stopSignal.aborted) await this.#work.wait(this.#pollMs);
  }

  #startAll(settled: readonly (TakenRun | SkippedSlots)[], scheduler: number): void {
    for (const one of settled) {
      if (one.run === null) {
        const { name: job, skipped: reason, occurrences: count } = one;
        this.#options.events.emit({ type: 'job.skipped', job, reason, count });
      } else void this.#run(new Run(one, scheduler));
    }
  }

  async #run(run: Run): Promise<void> {
    const { taken } = run;
    const since = performance.now();
    this.#runs.add(run);
    try {
      const { db, events } = this.#options;
      const options: RunOptions = { guests: this.#guests, db, events, handlers: this.#handlers };
      const end = await run.do(options);
      const isOurs = end.recorded || (await this.#record(run, end));
      const ms = performance.now() - since;
      if (isOurs) events.emit(endedEvent(taken, end, ms));
    } catch (error) {
      this.#failed('end', error);
    } finally {
      this.#runs.delete(run);
      if (this.#runs.size === 0) this.#emptied.resolve();
      this.#work.wake();
    }
  }

  /** Records the end of a run, however long the database is away; whoever takes it over meanwhile has it. */
  async #record({ taken, scheduler }: Run, { verdict, result }: RunEnd): Promise<boolean> {
    let { details } = result;
    for (let pause = 50; ; pause = Math.min(pause * 2, longestPauseMs)) {
      try {
        return await this.#store.end(taken, scheduler, verdict, { ...result, details });
      } catch (error) {
        if (this.#giveUp.signal.aborted) throw error;
        this.#failed('end', error);
        if (isOfValue(error)) details = undefined;
        await wait(pause, undefined, { signal: this.#giveUp.signal }).catch(() => {});
      }
    }
  }

  /** Also while runs are finished: without a lease others would start them again. */
  async #beatUntilIdle(): Promise<void> {
    while (!this.#giveUp.signal.aborted) {
      await this.#beat.wait(heartbeatMs);
      if (this.#giveUp.signal.aborted) return;
      try {
        await this.#heartbeat();
      } catch (error) {
        this.#failed('heartbeat', error);
      }
    }
  }

  async #heartbeat(): Promise<void> {
    if (this.#id === undefined) return;
    const { alive, dead = 0, cancel = [] } = await this.#store.heartbeat(this.#id);
    if (!alive) return this.#loseLease();
    for (const run of this.#runs) if (cancel.includes(run.taken.run)) run.stop('cancelled');
    if (dead === 0) return;
    // A process that stops takes nothing over.
    if (this.stopSignal.aborted) return;
    const runs = await this.#store.recover(this.#id);
    if (runs > 0) this.#options.events.emit({ type: 'scheduler.recovered', runs });
    this.#work.wake();
  }

  /** What was started under the old lease belongs to others; the next look begins a new one. */
  #loseLease(): void {
    if (this.#id === undefined) return;
    this.#options.events.emit({ type: 'scheduler.lease_lost', scheduler: this.#id });
    for (const run of this.#runs) if (run.scheduler === this.#id) run.stop('lost');
    this.#id = undefined;
    this.#work.wake();
  }

  async #idle(): Promise<void> {
    while (this.#runs.size > 0) {
      this.#emptied = Promise.withResolvers();
      await this.#emptied.promise;
    }
  }

  #failed(step: EventOf<'scheduler.failed'>['step'], error: unknown): void {
    this.#options.events.emit({ type: 'scheduler.failed', step, problem: problemOf(error) });
  }
}

function endedEvent(taken: TakenRun, { verdict, result }: RunEnd, ms: number): EventOf<'job.ended'> {
  const { name: job, run, slot, attempt, triggeredBy, latenessMs } = taken;
  const { message } = result;
  return { type: 'job.ended', job, run, slot, attempt, triggeredBy, outcome: verdict, message, ms, latenessMs };
}

/** So that schedulers which have read the same begin with different ones. */
function shuffle(plans: SlotPlan[]): void {
  for (let last = plans.length - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1));
    [plans[last], plans[other]] = [plans[other]!, plans[last]!];
  }
}

async function within(ms: number, work: Promise<unknown> | undefined): Promise<void> {
  const patience = new AbortController();
  const tired = wait(ms, undefined, { signal: patience.signal }).catch(() => {});
  await Promise.race([work?.catch(() => {}), tired]);
  patience.abort();
}

const ofValues: ReadonlySet<Failure> = new Set(['constraint', 'invalid_data', 'raised', 'other']);

/** Whether it may be the details that the database does not take, and then it never will. Anything else passes. */
function isOfValue(error: unknown): boolean {
  return !(error instanceof PgfreshError) && ofValues.has(failureOf(error));
}
