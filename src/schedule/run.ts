import { inspect } from 'node:util';
import type { JobContext, JobHandler, JobResult } from '../config/index.ts';
import type { Database } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import type { Lease } from '../process/index.ts';
import { runHandler } from './handler-run.ts';
import { runDatabase } from './run-database.ts';
import type { SchedulerAnswer } from './scheduler-lease.ts';
import type { RunVerdict, TakenRun } from './slot-store.ts';
import { runSqlJob } from './sql-job.ts';

/** Why a run is stopped early. */
export type StopReason = 'cancelled' | 'lost';

export interface RunEnd {
  readonly verdict: RunVerdict;
  readonly result: Omit<JobResult, 'success'>;
  /** The end is already in the database, committed with the run's writes. */
  readonly recorded: boolean;
}

export interface RunOptions {
  /** Where users' functions run. */
  readonly guests: Database;
  /** Passed to the handlers. */
  readonly db: JobContext['db'];
  /** Maximum connections per handler. */
  readonly connections: number;
  readonly events: Events;
  readonly handlers: ReadonlyMap<string, JobHandler>;
}

/** A run that is under way in this process. */
export class Run {
  readonly taken: TakenRun;
  /** The lease and request under which it was claimed. */
  readonly lease: Lease<SchedulerAnswer>;
  readonly request: string;
  readonly #stop = new AbortController();
  #stopReason: StopReason | undefined;

  constructor(taken: TakenRun, lease: Lease<SchedulerAnswer>, request: string) {
    this.taken = taken;
    this.lease = lease;
    this.request = request;
  }

  /** Stops it: cancelled for good, or lost, so that its next attempt starts elsewhere. */
  stop(reason: StopReason): void {
    this.#stopReason ??= reason;
    this.#stop.abort(
      new Error(reason === 'cancelled' ? 'it was cancelled' : 'its scheduler stops, or has lost its lease'),
    );
  }

  async do(options: RunOptions): Promise<RunEnd> {
    const whole = await this.#end(options);
    // Cut to the stored length, because it is logged too.
    const end = { ...whole, result: { ...whole.result, message: whole.result.message.slice(0, longestMessage) } };
    if (end.recorded || end.verdict !== 'failed' || this.#stopReason === undefined) return end;
    return { ...end, verdict: this.#stopReason };
  }

  /** Every started run ends, whatever goes wrong here. */
  async #end(options: RunOptions): Promise<RunEnd> {
    try {
      return this.taken.kind === 'sql' ? await this.#doSql(options) : await this.#doHandler(options);
    } catch (error) {
      return { verdict: 'failed', result: { message: problemOf(error) }, recorded: false };
    }
  }

  async #doSql({ guests }: RunOptions): Promise<RunEnd> {
    const { run, timeoutMs } = this.taken;
    const end = await runSqlJob(guests, { run, scheduler: this.lease.id, timeoutMs, signal: this.#stop.signal });
    switch (end.kind) {
      case 'succeeded':
        return { verdict: 'succeeded', result: end.result, recorded: true };
      case 'unsuccessful':
        return { verdict: 'failed', result: end.result, recorded: true };
      case 'failed':
        return { verdict: isOfDatabase(end.result) ? 'lost' : 'failed', result: end.result, recorded: false };
      case 'lost':
        return {
          verdict: 'lost',
          result: { message: 'it was taken over, and nothing of it was kept' },
          recorded: false,
        };
      // If it was committed after all, recording this end does nothing.
      case 'unknown':
      default:
        return { verdict: 'lost', result: { message: end.problem }, recorded: false };
    }
  }

  async #doHandler({ db: shared, connections, events, handlers }: RunOptions): Promise<RunEnd> {
    const { run, name: job, functionName, slot, attempt, params, timeoutMs } = this.taken;
    const late = new AbortController();
    const tooLong = new Error(`it took longer than its time limit of ${timeoutMs} ms`);
    // The longest timer is shorter than the longest time limit.
    const timer = setTimeout(() => late.abort(tooLong), Math.min(timeoutMs, 2 ** 31 - 1));
    const signal = AbortSignal.any([this.#stop.signal, late.signal]);
    const log = (said: string, details?: Readonly<Record<string, unknown>>): void => {
      const message = plainText(said);
      events.emit({ type: 'job.logged', job, run, message, ...(details && { details: plainDetails(details) }) });
    };
    const db = runDatabase(shared, connections, signal);
    try {
      const context = { job, slot, attempt, signal, params, log, db };
      const result = await runHandler(handlers.get(functionName)!, context);
      return { verdict: result.success ? 'succeeded' : 'failed', result, recorded: false };
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Stored length of a message, and of a log line's details. */
const longestMessage = 4_000;
const longestDetails = 65_536;

/** Any value from a handler as text. */
function plainText(said: unknown): string {
  const text = typeof said === 'string' ? said : inspect(said, { customInspect: false });
  return text.slice(0, longestMessage);
}

/** A handler's log values as every log can write them: they may hold big integers, cycles or throwing getters. */
function plainDetails(details: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const plain = (_key: string, value: unknown): unknown => (typeof value === 'bigint' ? String(value) : value);
  try {
    const text = JSON.stringify(details, plain);
    return text.length > longestDetails
      ? { left_out: 'more than 64 kB' }
      : (JSON.parse(text) as Record<string, unknown>);
  } catch {
    return { details: plainText(details) };
  }
}

/** A broken connection, a deadlock or a full server is not the job's failure. */
function isOfDatabase({
  details: { code, sqlstate },
}: {
  readonly details: { readonly code?: string; readonly sqlstate?: string };
}): boolean {
  return code === 'PGF_DATABASE_LOST' || (sqlstate !== undefined && ['40P01', '40001', '53300'].includes(sqlstate));
}
