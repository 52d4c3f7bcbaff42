import { GuestCut, type Database } from '../database/index.ts';
import type { JobResult } from '../config/index.ts';
import { PgfreshError, problemOf } from '../errors/index.ts';

export interface SqlJobRun {
  readonly run: number;
  readonly scheduler: number;
  readonly timeoutMs: number;
  /** Aborted when its result is no longer needed. */
  readonly signal?: AbortSignal | undefined;
  /** Grace period after a cancellation, before its session is terminated. */
  readonly graceMs?: number | undefined;
}

interface RaisedResult extends JobResult {
  readonly details: { readonly code?: string; readonly sqlstate?: string };
}

/**
 * How a run of an SQL function ended. `succeeded` and `unsuccessful` are what the function returned, committed with
 * its writes. `failed`: it raised or was cut off, its writes are rolled back, and the caller records it.
 * `lost`: the run is no longer ours. `unknown`: the database did not confirm the commit.
 */
export type SqlJobEnd =
  | { readonly kind: 'succeeded' | 'unsuccessful'; readonly result: JobResult }
  | { readonly kind: 'failed'; readonly result: RaisedResult }
  | { readonly kind: 'lost' }
  | { readonly kind: 'unknown'; readonly problem: string };

/**
 * Runs a job's function as the job's owner. The ownership check, the function and its result are one
 * transaction, so the function's writes are undone only if it raises.
 */
export async function runSqlJob(guests: Database, job: SqlJobRun): Promise<SqlJobEnd> {
  const { run, scheduler, timeoutMs, signal, graceMs } = job;
  try {
    const [row] = await guests.host<{ result: JobResult | null }>({
      statement: 'select pgfresh_engine.do_run($1::bigint, $2::bigint) as result',
      values: [run, scheduler],
      timeoutMs,
      signal,
      graceMs,
      isKept: ([kept]) => kept!.result !== null,
    });
    const { result } = row!;
    if (result === null) return { kind: 'lost' };
    return { kind: result.success ? 'succeeded' : 'unsuccessful', result };
  } catch (error) {
    return endOf(error, job);
  }
}

function endOf(error: unknown, { timeoutMs }: SqlJobRun): SqlJobEnd {
  if (error instanceof PgfreshError && error.code === 'PGF_COMMIT_UNKNOWN')
    return { kind: 'unknown', problem: problemOf(error) };
  if (error instanceof GuestCut) {
    const messages = {
      timeout: `The function took longer than its time limit of ${timeoutMs} ms.`,
      cancelled: 'It was cancelled.',
      interrupted: 'Someone cancelled its statement in the database.',
    };
    return failed(messages[error.reason], { sqlstate: '57014', reason: error.reason });
  }
  if (error instanceof PgfreshError) {
    const { sqlstate, hint } = detailsOf(error.cause);
    const { code, next } = error as PgfreshError;
    return failed(error.message, { code, next: hint ?? next, ...(sqlstate ? { sqlstate } : {}) });
  }
  return failed(problemOf(error), detailsOf(error));
}

function failed(message: string, details: Readonly<Record<string, string>>): SqlJobEnd {
  return { kind: 'failed', result: { success: false, message: message.slice(0, 4_000), details } };
}

// Not the error's DETAIL, which may show values of rows.
function detailsOf(error: unknown): { sqlstate?: string; hint?: string; where?: string } {
  const { code, hint, where } = (error ?? {}) as { code?: unknown; hint?: unknown; where?: unknown };
  return {
    ...(typeof code === 'string' ? { sqlstate: code } : {}),
    ...(typeof hint === 'string' ? { hint } : {}),
    ...(typeof where === 'string' ? { where: where.slice(0, 2_000) } : {}),
  };
}
