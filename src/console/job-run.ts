import type { Context } from 'hono';
import { z } from 'zod';
import type { Queryable } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { endOfRun, retryOf, triggerJob, type Triggered } from '../schedule/index.ts';
import { readBody, statusOf } from './request.ts';

const body = z.strictObject({
  params: z.record(z.string(), z.unknown()).optional(),
  /** Seconds to wait for the end of the run. */
  wait: z.number().min(0).max(300).default(30),
});

/**
 * Runs a job now, due or not, and answers with the result. Skips it if it is already running, or if the database does
 * not answer.
 */
export async function runJob(db: Queryable, events: Events, name: string, context: Context): Promise<Response> {
  const { params, wait } = await readBody(context, body);
  const failed = (error: unknown): void => {
    const { method, path } = context.req;
    events.emit({ type: 'http.failed', method, path, problem: problemOf(error) });
  };
  let triggered: Triggered;
  try {
    triggered = await triggerJob(db, name, params);
  } catch (error) {
    if (statusOf(error) !== undefined) throw error;
    failed(error);
    return context.json({ ok: true, skipped: true, reason: 'schedule_read_error' });
  }
  const { success, schedulers, message, run_id, job_name } = triggered;
  const run = { run_id, job_name };
  if (!success) return context.json({ ok: true, skipped: true, reason: 'locked', ...run, message });
  const timeout = AbortSignal.timeout(schedulers === 0 ? 0 : wait * 1_000);
  const signal = AbortSignal.any([timeout, context.req.raw.signal]);
  const ended = await endOfRun(db, run_id, signal).catch(failed);
  if (!ended) {
    const why = schedulers === 0 ? message : `${message}; it has not ended within ${wait} s`;
    return context.json({ ok: true, accepted: true, ...run, message: why });
  }
  const { state, success: ok, message: result, details, duration_ms } = ended;
  const retry = await retryOf(db, run_id).catch(failed);
  return context.json({
    ok,
    ran: true,
    ...run,
    state,
    success: ok,
    message: result,
    details,
    duration_ms,
    ...(retry && { retry }),
  });
}
