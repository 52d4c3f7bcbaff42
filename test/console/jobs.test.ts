import { readFile } from 'node:fs/promises';
import { Hono } from 'hono';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { jobRoutes } from '../../src/console/index.ts';
import type { EventOf } from '../../src/events/index.ts';
import type { JobDetails, JobRun, JobStatus } from '../../src/schedule/index.ts';
import { ScheduleScene } from '../schedule/scene.ts';
import { serveJobs } from './job-server.ts';

const token = 'the token of this test';
let scene: ScheduleScene;
let url = '';
const failed: EventOf<'http.failed'>[] = [];

beforeAll(async () => {
  scene = await ScheduleScene.open();
  scene.events.on('http.failed', (event) => void failed.push(event));
  await scene.job('nightly', { schedule: '0 3 * * *', timezone: 'America/New_York', blackout_dates: ['2026-01-07'] });
  await scene.job('hourly', { schedule: '0 * * * *' });
  await scene.job('often', { every_min: '10 minutes' });
  url = `${await serveJobs(scene, token)}/api/jobs`;
  await scene.scheduler();
  await scene.idle();
});

interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

async function get(path: string): Promise<Answer> {
  const response = await fetch(`${url}${path}`);
  return { status: response.status, body: (await response.json()) as Answer['body'] };
}

async function post(path: string, body?: unknown, authorization = `Bearer ${token}`): Promise<Answer> {
  const response = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { authorization },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  return { status: response.status, body: (await response.json()) as Answer['body'] };
}

const good = async <T>(answer: Promise<Answer>): Promise<T> => {
  const { status, body } = await answer;
  expect([status, body['error']]).toEqual([200, undefined]);
  return body as T;
};

it('docs/guides/scheduling.md has every route', async () => {
  const page = await readFile('docs/guides/scheduling.md', 'utf8');
  const app = new Hono();
  jobRoutes(app, { db: scene.db, events: scene.events });
  const routes = app.routes.map(({ method, path }) => `${method} ${path}`);
  const documented = [...page.matchAll(/^\| `((?:GET|POST) \S+)` \|/gm)].map(([, route]) => route!);
  expect(documented.toSorted()).toEqual([...new Set(routes)].toSorted());
});

describe('reading', () => {
  it('lists jobs, in pages', async () => {
    const { jobs } = await good<{ jobs: JobStatus[] }>(get(''));
    expect(jobs).toMatchObject([
      { name: 'hourly', state: 'ok', schedule: '0 * * * *', every_min_ms: null },
      { name: 'nightly', timezone: 'America/New_York', next_run_at: '2026-01-06T08:00:00.000Z' },
      { name: 'often', schedule: null, every_min_ms: 600_000, every_max_ms: 600_000 },
    ]);
    expect(await good(get('?limit=1&after=hourly'))).toMatchObject({ jobs: [{ name: 'nightly' }] });
  });

  it('shows one, and its next slots', async () => {
    expect(await good(get('/nightly'))).toMatchObject({
      job: { name: 'nightly', timeout_ms: 30_000, blackout_dates: ['2026-01-07'], catch_up: 'once' },
    });
    expect(await good(get('/nightly/next?count=2'))).toEqual({
      next: [
        { slot: '2026-01-06T08:00:00.000Z', skipped: null },
        { slot: '2026-01-07T08:00:00.000Z', skipped: 'blackout' },
      ],
    });
    expect(await good(get('/often/next'))).toEqual({ next: [{ slot: '2026-01-05T12:10:00.000Z', skipped: null }] });
  });
});

describe('writing', () => {
  it('pauses and resumes', async () => {
    const { job } = await good<{ job: JobDetails }>(post('/nightly/pause', { for: '2h', reason: 'moving house' }));
    expect(job).toMatchObject({
      state: 'paused',
      paused_reason: 'moving house',
      paused_at: '2026-01-05T12:00:00.000Z',
      paused_until: '2026-01-05T14:00:00.000Z',
    });
    expect(await good(post('/nightly/pause'))).toMatchObject({ job: { paused_until: null, paused_reason: null } });
    expect(await good(get('/nightly/next?count=1'))).toMatchObject({ next: [{ skipped: 'paused' }] });
    expect(await good(post('/nightly/resume'))).toMatchObject({ job: { state: 'ok', paused_at: null } });
  });

  it('backfills, and cancels what is left of it', async () => {
    const december = { from: '2025-12-01', until: '2025-12-31T00:00:00+00:00', per_minute: 1 };
    const dry = await good(post('/nightly/backfill', { ...december, dry_run: true }));
    expect(dry).toMatchObject({ slots: 30, queued: 0, first: '2025-12-01T08:00:00.000Z', schedulers: 1 });
    expect(await good(post('/nightly/backfill', december))).toMatchObject({ queued: 30, skipped: 0 });
    await scene.idle();
    // One a minute, and the clock stands still.
    const { cancelled } = await good<{ cancelled: unknown[] }>(post('/nightly/cancel', { backfill: true }));
    expect(cancelled).toHaveLength(29);
    expect(await good(post('/nightly/backfill', { ...december, until: '2025-12-03' }))).toMatchObject({
      queued: 1,
      skipped: 1,
    });
    await scene.idle();
    const { runs } = await good<{ runs: JobRun[] }>(get('/nightly/runs?state=succeeded'));
    expect(runs).toMatchObject([
      { triggered_by: 'backfill', scheduled_for: '2025-12-02T08:00:00.000Z' },
      { triggered_by: 'backfill', scheduled_for: '2025-12-01T08:00:00.000Z' },
    ]);
    const page = await good<{ runs: JobRun[] }>(get(`/nightly/runs?limit=2&before=${runs[1]!.id + 2}`));
    expect(page.runs.map(({ id }) => id)).toEqual([runs[1]!.id + 1, runs[1]!.id]);
  });

  it('runs, and cancels nothing when nothing is open', async () => {
    expect(await good(post('/hourly/run', { params: { days: 7 } }))).toMatchObject({ ran: true, message: 'worked' });
    expect(await good(post('/hourly/cancel'))).toEqual({ cancelled: [] });
    const { runs } = await good<{ runs: JobRun[] }>(get('/hourly/runs'));
    expect(await good(post('/hourly/cancel', { run_id: runs[0]!.id }))).toMatchObject({
      cancelled: [{ success: false, state: 'succeeded' }],
    });
  });

  it('needs the token', async () => {
    for (const action of ['run', 'pause', 'resume', 'cancel', 'backfill'])
      expect((await post(`/nightly/${action}`, {}, 'Bearer of somebody else')).status).toBe(401);
  });
});

describe('what makes no sense', () => {
  it.each(['', '/next', '/runs'])('an unknown job: GET /nihgtly%s', async (path) => {
    expect(await get(`/nihgtly${path}`)).toMatchObject({
      status: 404,
      body: { error: { code: 'PGF_JOB_UNKNOWN', message: 'There is no job "nihgtly"; did you mean "nightly"?' } },
    });
  });

  it.each(['run', 'pause', 'resume', 'cancel', 'backfill'])('an unknown job: POST /nihgtly/%s', async (action) => {
    const body = action === 'backfill' ? { from: '2026-01-01' } : undefined;
    expect(await post(`/nihgtly/${action}`, body)).toMatchObject({
      status: 404,
      body: { error: { code: 'PGF_JOB_UNKNOWN', next: expect.stringContaining('select name') as string } },
    });
  });

  it('a name that cannot be one', async () => {
    for (const name of ['a%00b', '%27', '..%2Fx', 'x'.repeat(101)]) expect((await get(`/${name}`)).status).toBe(404);
  });

  it.each([
    ['?limit=0', 'query.limit: expected a number from 1 to 1000'],
    ['?limit=1001', 'query.limit: expected a number from 1 to 1000'],
    ['?limit=ten', 'query.limit: expected a number from 1 to 1000'],
    ['?page=2', 'query: unrecognized key: "page"'],
    ['/nightly/next?count=-1', 'query.count: expected a number from 1 to 1000'],
    ['/nightly/runs?state=bad', 'query.state: '],
    ['/nightly/runs?before=x', 'query.before: expected a number from 1'],
  ])('GET %s', async (path, message) => {
    expect(await get(path)).toMatchObject({
      status: 400,
      body: { error: { code: 'PGF_ARGUMENT_INVALID', message: expect.stringContaining(message) as string } },
    });
  });

  it.each([
    ['pause', '{', 'the body is not JSON'],
    ['pause', '[]', 'body: '],
    ['pause', { for: 'ever' }, 'body.for: expected a positive time such as "30s"'],
    ['pause', { for: -1 }, 'body.for: expected a positive time'],
    ['pause', { reason: 'x'.repeat(1_001) }, 'body.reason: '],
    ['pause', { until: '2027-01-01' }, 'body: unrecognized key: "until"'],
    ['resume', { now: true }, 'body: unrecognized key: "now"'],
    ['cancel', { run_id: '1' }, 'body.run_id: '],
    ['cancel', { run_id: 1.5 }, 'body.run_id: '],
    ['backfill', undefined, 'body.from: expected a time such as "2026-11-01T06:00:00Z"'],
    ['backfill', { from: 'May' }, 'body.from: expected a time such as'],
    ['backfill', { from: '2026-01-01T00:00:00' }, 'body.from: expected a time such as'],
    ['backfill', { from: '2026-01-01', per_minute: 0 }, 'body.per_minute: '],
    ['backfill', { from: '2030-01-01' }, 'The time must begin before it ends, and before now'],
    ['backfill', { from: '1970-01-01' }, 'That time has more than 10000 slots; take a shorter one'],
  ])('POST %s %j', async (action, body, message) => {
    expect(await post(`/nightly/${action}`, body)).toMatchObject({
      status: 400,
      body: { error: { code: 'PGF_ARGUMENT_INVALID', message: expect.stringContaining(message) as string } },
    });
  });

  it('a backfill without slots, a run of another job, and a body that is too long', async () => {
    expect(await post('/often/backfill', { from: '2026-01-01' })).toMatchObject({
      status: 400,
      body: { error: { message: expect.stringContaining('The job often has no slots') as string } },
    });
    expect(await post('/often/cancel', { run_id: 1 })).toMatchObject({
      status: 404,
      body: { error: { code: 'PGF_RUN_UNKNOWN', message: 'The job often has no run 1' } },
    });
    expect((await post('/often/pause', { reason: 'x'.repeat(65 * 1_024) })).status).toBe(413);
  });

  it('is told apart from what fails inside, of which strangers learn nothing', async () => {
    await scene.db.query('alter view pgfresh.scheduled_job_status rename to away');
    onTestFinished(async () => {
      await scene.db.query('alter view pgfresh.away rename to scheduled_job_status');
    });
    expect(await get('/nightly')).toMatchObject({ status: 500, body: { error: { code: 'PGF_HTTP_FAILED' } } });
    expect(failed).toMatchObject([{ path: '/api/jobs/nightly', problem: expect.stringContaining('status') as string }]);
  });
});
