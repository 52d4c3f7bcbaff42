import { setTimeout as wait } from 'node:timers/promises';
import type { Context, Hono } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import { z } from 'zod';
import type { Queryable } from '../database/index.ts';
import { PgfreshError, problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';

interface JobRunOptions {
  readonly db: Queryable;
  readonly events: Events;
}

/** As trigger_scheduled_job answers. */
interface Triggered {
  readonly success: boolean;
  readonly run_id: number;
  readonly job_name: string;
  readonly message: string;
  /** How many scheduler processes are alive, one of which will run it. */
  readonly schedulers?: number;
}

interface Ended {
  readonly state: string;
  readonly success: boolean;
  readonly message: string | null;
  readonly details: unknown;
  readonly duration_ms: number | null;
}

const largest = 64 * 1024;
// What can not be a name is not asked for: a zero character would not even reach the function.
const jobName = /^[\w.-]{1,100}$/;
const pollMs = 100;
const refusals: Readonly<Record<string, 400 | 403 | 404>> = {
  PGF_ARGUMENT_INVALID: 400,
  PGF_JOB_RIGHT: 403,
  PGF_JOB_UNKNOWN: 404,
};
const wished = z.strictObject({
  params: z.record(z.string(), z.unknown()).optional(),
  /** For how many seconds to wait for the end. */
  wait: z.number().min(0).max(300).default(30),
});

/**
 * `POST /api/jobs/:name/run`: runs a job by hand, due or not, and answers what came of it. While it runs already it is
 * skipped, and so it is when the database does not say whether it does.
 */
export function jobRunRoute(app: Hono, { db, events }: JobRunOptions): void {
  const tooLarge = (context: Context): Response => refused(context, 413, 'PGF_ARGUMENT_INVALID', 'The body is larger than 64 kB.');
  app.post('/api/jobs/:name/run', bodyLimit({ maxSize: largest, onError: tooLarge }), async (context) => {
    const body = wished.safeParse(await readBody(context));
    if (!body.success) {
      const expected = 'expected no body, or JSON such as {"params": {"days": 7}, "wait": 30}, with at most 300 s';
      return refused(context, 400, 'PGF_ARGUMENT_INVALID', `The body can not be used: ${expected}.`);
    }
    const failed = (error: unknown): void => {
      const { method, path } = context.req;
      events.emit({ type: 'http.failed', method, path, problem: problemOf(error) });
    };
    const name = context.req.param('name');
    if (!jobName.test(name)) return refused(context, 404, 'PGF_JOB_UNKNOWN', 'There is no job of that name.');
    let triggered: Triggered;
    try {
      triggered = await trigger(db, name, body.data.params);
    } catch (error) {
      const status = error instanceof PgfreshError ? refusals[error.code] : undefined;
      if (status !== undefined) return refused(context, status, (error as PgfreshError).code, problemOf(error));
      failed(error);
      return context.json({ ok: true, skipped: true, reason: 'schedule_read_error' });
    }
    const { success, schedulers, message, run_id, job_name } = triggered;
    const run = { run_id, job_name };
    if (!success) return context.json({ ok: true, skipped: true, reason: 'locked', ...run, message });
    const seconds = schedulers === 0 ? 0 : body.data.wait;
    const ended = await endOf(db, run_id, seconds * 1000, context.req.raw.signal).catch(failed);
    if (!ended) return context.json({ ok: true, accepted: true, ...run, message });
    return context.json({ ok: ended.success, ran: true, ...run, ...ended });
  });
}

async function readBody(context: Context): Promise<unknown> {
  const text = await context.req.text();
  if (text.trim() === '') return {};
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

async function trigger(db: Queryable, name: string, params: object | undefined): Promise<Triggered> {
  const [row] = await db.query<{ answer: Triggered }>(
    'select pgfresh.trigger_scheduled_job($1::text, $2::jsonb) as answer',
    [name, params === undefined ? null : JSON.stringify(params)],
  );
  return row!.answer;
}

/** How the run ended; nothing if it has not within that time, or nobody waits for it any more. */
async function endOf(db: Queryable, run: number, patienceMs: number, gone: AbortSignal): Promise<Ended | undefined> {
  const deadline = performance.now() + patienceMs;
  for (;;) {
    const [row] = await db.query<Ended>(
      `select state, success, message, details, duration_ms from pgfresh.scheduled_job_runs where id = $1::bigint and completed_at is not null`,
      [run],
    );
    if (row || gone.aborted || performance.now() >= deadline) return row;
    await wait(pollMs, undefined, { signal: gone }).catch(() => {});
  }
}

function refused(context: Context, status: 400 | 403 | 404 | 413, code: string, message: string): Response {
  return context.json({ error: { code, message } }, status);
}
