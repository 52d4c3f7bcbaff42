import { Hono } from 'hono';
import { z } from 'zod';
import { duration } from '../config/index.ts';
import type { Queryable } from '../database/index.ts';
import type { Events } from '../events/index.ts';
import {
  backfillJob,
  cancelJob,
  jobHistory,
  listJobs,
  nextJobSlots,
  pauseJob,
  resumeJob,
  runStates,
  showJob,
} from '../schedule/index.ts';
import { runJob } from './job-run.ts';
import { limited, readBody, readQuery, refusal } from './request.ts';

const numberUpTo = (most: number) => {
  const expected = `expected a number from 1 to ${most}`;
  return z
    .string()
    .regex(/^\d{1,16}$/, expected)
    .transform(Number)
    .pipe(z.number().min(1, expected).max(most, expected));
};
const instant = z
  .union([z.iso.datetime({ offset: true }), z.iso.date()], 'expected a time such as "2026-11-01T06:00:00Z"')
  .transform((text) => new Date(text));
const whole = (most: number) => z.int().min(1).max(most);

const queries = {
  list: z.strictObject({ after: z.string().optional(), limit: numberUpTo(1_000).optional() }),
  history: z.strictObject({
    limit: numberUpTo(1_000).optional(),
    before: numberUpTo(Number.MAX_SAFE_INTEGER).optional(),
    state: z.enum(runStates).optional(),
  }),
  next: z.strictObject({ count: numberUpTo(1_000).default(5) }),
};
const bodies = {
  nothing: z.strictObject({}),
  pause: z.strictObject({ for: duration.optional(), reason: z.string().max(1_000).optional() }),
  cancel: z.strictObject({ run_id: whole(Number.MAX_SAFE_INTEGER).optional(), backfill: z.boolean().optional() }),
  backfill: z.strictObject({
    from: instant,
    until: instant.optional(),
    per_minute: whole(6_000).optional(),
    dry_run: z.boolean().optional(),
  }),
};

interface JobRoutesOptions {
  readonly db: Queryable;
  readonly events: Events;
}

/** The commands of `pgfresh jobs` as an HTTP API, under `/api/jobs`. */
export function jobRoutes(app: Hono, { db, events }: JobRoutesOptions): void {
  const jobs = new Hono();
  jobs.onError(refusal);
  jobs.get('/', async (context) => context.json({ jobs: await listJobs(db, readQuery(context, queries.list)) }));
  jobs.get('/:name', async (context) => context.json({ job: await showJob(db, context.req.param('name')) }));
  jobs.get('/:name/runs', async (context) => {
    const options = readQuery(context, queries.history);
    return context.json({ runs: await jobHistory(db, context.req.param('name'), options) });
  });
  jobs.get('/:name/next', async (context) => {
    const { count } = readQuery(context, queries.next);
    return context.json({ next: await nextJobSlots(db, context.req.param('name'), count) });
  });
  jobs.post('/:name/run', limited, (context) => runJob(db, events, context.req.param('name'), context));
  jobs.post('/:name/pause', limited, async (context) => {
    const { for: ms, reason } = await readBody(context, bodies.pause);
    return context.json({ job: await pauseJob(db, context.req.param('name'), { ms, reason }) });
  });
  jobs.post('/:name/resume', limited, async (context) => {
    await readBody(context, bodies.nothing);
    return context.json({ job: await resumeJob(db, context.req.param('name')) });
  });
  jobs.post('/:name/cancel', limited, async (context) => {
    const { run_id: run, backfill } = await readBody(context, bodies.cancel);
    return context.json({ cancelled: await cancelJob(db, context.req.param('name'), { run, backfill }) });
  });
  jobs.post('/:name/backfill', limited, async (context) => {
    const { per_minute: perMinute, dry_run: dryRun, ...time } = await readBody(context, bodies.backfill);
    return context.json(await backfillJob(db, context.req.param('name'), { ...time, perMinute, dryRun }));
  });
  app.route('/api/jobs', jobs);
}
