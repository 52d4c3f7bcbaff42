import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import { performance } from 'node:perf_hooks';
import { durationBetween, nearMiss } from '../config/index.ts';
import { PgfreshError, problemOf } from '../errors/index.ts';
import { HeldLease, type Leased } from './held-lease.ts';
import { rowsFrom, type SqlClient } from './sql-client.ts';

/** A time such as "10m" or in milliseconds, or the bounds of a random one. */
export type Wait = number | string | readonly [least: number | string, most: number | string];

export interface LeaseOptions {
  /** Not the connection that the work writes on: renewals would wait for its transaction. */
  readonly db: SqlClient;
  /** Duration of the lease and of each renewal; default: 5 minutes. */
  readonly lease?: number | string | undefined;
  /** Maximum time for the work, even if its lease is renewed; default: one hour. */
  readonly maxRun?: number | string | undefined;
  /** Delay to the next run after a success. Default: from pgfresh.refresh_schedule, initially 10 to 15 minutes. */
  readonly every?: Wait | undefined;
  /** The same after a failure; initially 20 to 40 minutes. */
  readonly afterFailure?: Wait | undefined;
  /** Runs even if not due. */
  readonly manual?: boolean | undefined;
  /** Aborts the work, for instance because the process ends. If the work fails because of that, it stays due. */
  readonly signal?: AbortSignal | undefined;
}

/** Why the work was skipped. `schedule_read_error`: the database did not tell whether it may run. */
export type SkipReason = 'locked' | 'not_due' | 'disabled' | 'schedule_read_error';

export type LeaseResult<T> =
  | {
      readonly ran: true;
      readonly result: T;
      readonly nextRunAt: Date | null;
      /** Why the end could not be recorded: the next run is due as if this one had not happened. */
      readonly problem?: string;
    }
  | { readonly skipped: true; readonly reason: SkipReason; readonly nextRunAt: Date | null; readonly problem?: string };

interface Acquired {
  readonly reason: 'acquired' | 'locked' | 'not_due' | 'disabled';
  readonly token: number | string | null;
  readonly next_run_at: Date | null;
  /** Forced before it was due: then the next run stays as planned. */
  readonly early: boolean | null;
}

interface Released {
  readonly reason: 'released' | 'lost';
  readonly next_run_at: Date | null;
}

const leaseTime = durationBetween('1s', '1d');
const runTime = durationBetween('1ms', '7d');
const waitTime = durationBetween('1ms', '366d');

/**
 * Does the work if it is due and no other process does it, under a lease that is renewed meanwhile. The work must stop
 * when its signal is aborted. Throws the work's error after recording the failure; if the lease was lost,
 * nothing is recorded.
 */
export async function withLease<T>(
  name: string,
  options: LeaseOptions,
  work: (leased: Leased) => Promise<T>,
): Promise<LeaseResult<T>> {
  requireKnown(options);
  const { db, lease = '5m', maxRun = '1h', every, afterFailure, manual = false, signal } = options;
  const leaseMs = read('lease', leaseTime, lease);
  const maxRunMs = read('maxRun', runTime, maxRun);
  const nextAfter = { success: waitOf('every', every), failure: waitOf('afterFailure', afterFailure) };
  const heldFrom = performance.now();
  let row: Acquired;
  try {
    row = await acquire(db, name, leaseMs, manual);
  } catch (error) {
    if (error instanceof PgfreshError && error.code === 'PGF_ARGUMENT_INVALID') throw error;
    // Another process may be doing the work, so skip it.
    return { skipped: true, reason: 'schedule_read_error', nextRunAt: null, problem: problemOf(error) };
  }
  if (row.reason !== 'acquired') return { skipped: true, reason: row.reason, nextRunAt: row.next_run_at };

  const token = Number(row.token);
  const held = new HeldLease({ db, name, token, leaseMs, maxRunMs, heldFrom, signal });
  const outcome = await held.run(work).then(
    (result) => ({ result }),
    (error: unknown) => ({ error }),
  );
  const nextIn = (wait: () => number | undefined): number | undefined => (row.early ? undefined : wait());
  if ('error' in outcome) {
    await release(db, name, token, signal?.aborted ? null : false, nextIn(nextAfter.failure));
    throw outcome.error;
  }
  const { reason, next_run_at: nextRunAt, problem } = await release(db, name, token, true, nextIn(nextAfter.success));
  if (problem !== undefined) return { ran: true, result: outcome.result, nextRunAt, problem };
  if (reason === 'released') return { ran: true, result: outcome.result, nextRunAt };
  const late = `the work "${name}" ended after its lease, with token ${token}, was lost; no success is recorded`;
  throw new PgfreshError('PGF_LOCK_LOST', { problem: late });
}

const known = ['db', 'lease', 'maxRun', 'every', 'afterFailure', 'manual', 'signal'] satisfies (keyof LeaseOptions)[];

/** Rejects unknown options: a misspelt one would have no effect. */
function requireKnown(options: LeaseOptions): void {
  const unknown = Object.keys(options).find((option) => !known.some((name) => name === option));
  if (unknown === undefined) return;
  const near = nearMiss(unknown, known);
  const hint = near === undefined ? '' : `; did you mean "${near}"?`;
  throw new PgfreshError('PGF_ARGUMENT_INVALID', { problem: `${unknown}: there is no such option${hint}` });
}

async function acquire(db: SqlClient, name: string, leaseMs: number, manual: boolean): Promise<Acquired> {
  // Unique per process and acquisition, so that no two holders are confused.
  const holder = `${hostname().slice(0, 60)} ${process.pid} ${randomUUID()}`;
  const [row] = await rowsFrom<Acquired>(
    db,
    `select reason, token, next_run_at, next_run_at > locked_until - make_interval(secs => $3::float8) as early
     from pgfresh.acquire_refresh_lock($1::text, $2::text, make_interval(secs => $3::float8), $4::boolean)`,
    [name, holder, leaseMs / 1000, manual],
  );
  return row!;
}

/** Records the end. If that fails, only releases the lease, so that others can do the work. */
async function release(
  db: SqlClient,
  name: string,
  token: number,
  success: boolean | null,
  waitMs?: number,
): Promise<Released & { readonly problem?: string }> {
  const send = async (...[how, ms]: [how: boolean | null, ms?: number | undefined]): Promise<Released> => {
    const [row] = await rowsFrom<Released>(
      db,
      `select reason, next_run_at from pgfresh.release_refresh_lock($1::text, $2::bigint, $3::boolean, make_interval(secs => $4::float8))`,
      [name, token, how, ms === undefined ? null : ms / 1000],
    );
    return row!;
  };
  try {
    return await send(success, waitMs);
  } catch (error) {
    const alone = await send(null).catch((): Released => ({ reason: 'lost', next_run_at: null }));
    return { ...alone, problem: problemOf(error) };
  }
}

/** A function that draws each delay; undefined if the row decides. */
function waitOf(option: string, wait: Wait | undefined): () => number | undefined {
  if (wait === undefined) return () => undefined;
  const [least, most = least] = typeof wait === 'object' ? wait : [wait];
  const [low, high] = [read(option, waitTime, least), read(option, waitTime, most)];
  if (high < low) throw invalid(option, 'expected the least before the most', wait);
  return () => low + Math.random() * (high - low);
}

function read(option: string, time: typeof waitTime, value: unknown): number {
  const { success, data, error } = time.safeParse(value);
  if (!success) throw invalid(option, error.issues[0]!.message, value);
  return data;
}

function invalid(option: string, expected: string, got: unknown): PgfreshError {
  return new PgfreshError('PGF_ARGUMENT_INVALID', { problem: `${option}: ${expected}, got ${JSON.stringify(got)}` });
}
