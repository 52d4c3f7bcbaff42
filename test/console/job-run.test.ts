import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { JobContext, JobResult } from '../../src/config/index.ts';
import type { PgfreshEvent } from '../../src/events/index.ts';
import { ScheduleScene, until } from '../schedule/scene.ts';
import { serveJobs } from './job-server.ts';

const token = 'the token of this test';
let scene: ScheduleScene;
let url: string;
const seen: PgfreshEvent[] = [];
/** Runs of the handler that have begun and not ended. */
const running: { context: JobContext; end: (result: JobResult) => void }[] = [];

beforeAll(async () => {
  scene = await ScheduleScene.open();
  scene.events.subscribe((event) => seen.push(event));
  url = await serveJobs(scene, token);
  await scene.job('heavy', {
    kind: 'handler',
    function_name: 'heavy',
    every_min: '10 minutes',
    every_max: '15 minutes',
  });
  await scene.job('quick');
  await scene.job('failing', { function_name: 'fail' });
});

function run(
  name: string,
  { body, authorization = `Bearer ${token}` }: { body?: unknown; authorization?: string } = {},
) {
  return fetch(`${url}/api/jobs/${encodeURIComponent(name)}/run`, {
    method: 'POST',
    headers: { authorization },
    ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
}

async function answered(answer: Promise<Response>): Promise<Record<string, unknown>> {
  const response = await answer;
  expect(response.status).toBe(200);
  return (await response.json()) as Record<string, unknown>;
}

const begun = (count = 1) => until(() => running.length === count);
const end = (result: JobResult = { success: true, message: 'worked' }): void => running.shift()!.end(result);

describe('without a scheduler', () => {
  it('a run is accepted, and says that it has to wait', async () => {
    const answer = await answered(run('quick'));
    expect(answer).toMatchObject({ ok: true, accepted: true, job_name: 'quick', run_id: expect.any(Number) as number });
    expect(answer['message']).toMatch(/no scheduler/);
    expect(await answered(run('quick'))).toMatchObject({ ok: true, skipped: true, reason: 'locked' });
  });
});

describe('with one', () => {
  beforeAll(async () => {
    await scene.scheduler({
      heavy: (context) => new Promise((resolve) => running.push({ context, end: resolve })),
    });
    await scene.idle();
  });

  it('what ran is answered', async () => {
    expect(await answered(run('quick', { body: { params: { days: 7 } } }))).toEqual({
      ok: true,
      ran: true,
      job_name: 'quick',
      run_id: expect.any(Number) as number,
      state: 'succeeded',
      success: true,
      message: 'worked',
      details: null,
      duration_ms: 0,
    });
    expect(await scene.value(`(select params from public.done order by id desc limit 1)`)).toEqual({ days: 7 });
    expect(await answered(run('failing'))).toMatchObject({ ok: false, ran: true, success: false, message: 'no luck' });
  });

  it('truth 10: an answer says when the run is tried again, and /api/jobs that the job fails', async () => {
    await scene.job('retried', { function_name: 'fail', schedule: '@yearly', retries: 1, retry_base: '1 hour' });
    const retry = { run_id: expect.any(Number) as number, attempt: 2, run_at: '2026-01-05T13:00:00.000Z' };
    expect(await answered(run('retried'))).toMatchObject({ ok: false, ran: true, retry });
    const { jobs } = (await (await fetch(`${url}/api/jobs?after=quick`)).json()) as { jobs: object[] };
    expect(jobs).toMatchObject([{ name: 'retried', state: 'failing', problem: 'its last run has failed: no luck' }]);
    await scene.db.query(`delete from pgfresh.scheduled_jobs where name = 'retried'`);
  });

  it('truth 14: parameters for a function that takes none are a bad request', async () => {
    const refused = await run('failing', { body: { params: { days: 7 } } });
    expect(refused.status).toBe(400);
    expect(await refused.json()).toMatchObject({ error: { code: 'PGF_JOB_INVALID' } });
  });

  it('of two at the same time one runs, and the other one is told that it is locked', async () => {
    const next = await scene.value<Date>(`(select next_run_at from pgfresh.scheduled_job_status where name = 'heavy')`);
    const both = [run('heavy'), run('heavy')].map(answered);
    const first = await Promise.race(both);
    expect(first).toMatchObject({ ok: true, skipped: true, reason: 'locked' });
    await begun();
    end();
    const answers = await Promise.all(both);
    expect(answers.filter(({ ran }) => ran === true)).toMatchObject([{ ok: true, message: 'worked' }]);
    expect(running).toEqual([]);
    // It was not due, and what is due is left where it was.
    expect(await scene.value(`(select next_run_at from pgfresh.scheduled_job_status where name = 'heavy')`)).toEqual(
      next,
    );
  });

  it('by hand is locked while a scheduled one runs', async () => {
    await scene.advance('15 minutes');
    await begun();
    expect(running[0]!.context.slot).toBeInstanceOf(Date);
    expect(await answered(run('heavy'))).toMatchObject({ ok: true, skipped: true, reason: 'locked' });
    end();
    await scene.idle();
    const again = answered(run('heavy'));
    await begun();
    expect(running[0]!.context.slot).toBeNull();
    end({ success: false, message: 'not this time', details: { why: 'a test' } });
    expect(await again).toMatchObject({ ok: false, ran: true, message: 'not this time', details: { why: 'a test' } });
  });

  it('need not be waited for', async () => {
    const message = 'accepted; it has not ended within 0 s';
    expect(await answered(run('heavy', { body: { wait: 0 } }))).toMatchObject({ ok: true, accepted: true, message });
    await begun();
    end();
    await scene.idle();
  });

  it('does nothing when the schedule cannot be read', async () => {
    await scene.db.query('alter table pgfresh.scheduled_job_runs rename to away');
    onTestFinished(async () => {
      await scene.db.query('alter table if exists pgfresh.away rename to scheduled_job_runs');
    });
    expect(await answered(run('heavy'))).toEqual({ ok: true, skipped: true, reason: 'schedule_read_error' });
    await scene.db.query('alter table pgfresh.away rename to scheduled_job_runs');
    await scene.idle();
    expect(running).toEqual([]);
    expect(seen.filter(({ type }) => type === 'http.failed')).toMatchObject([
      { path: '/api/jobs/heavy/run', problem: expect.stringContaining('scheduled_job_runs') as string },
    ]);
  });
});

describe('what makes no sense', () => {
  it('needs the token', async () => {
    for (const authorization of ['', 'Bearer of somebody else']) {
      expect((await run('quick', { authorization })).status).toBe(401);
    }
  });

  it.each(['no_such_job', 'QUICK', ' ', '../quick', `'; drop schema pgfresh cascade; --`, '日経', 'x'.repeat(101)])(
    'the job %s',
    async (name) => {
      const response = await run(name);
      expect(response.status).toBe(404);
      expect(await response.json()).toMatchObject({ error: { code: 'PGF_JOB_UNKNOWN' } });
    },
  );

  it.each([
    ['not JSON', '{'],
    ['a list', '[]'],
    ['null', 'null'],
    ['an unknown word', { parameters: {} }],
    ['parameters that are none', { params: [1] }],
    ['a wait that never ends', { wait: 301 }],
    ['a wait into the past', { wait: -1 }],
  ])('a body that is %s', async (_, body) => {
    const response = await run('quick', { body });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { code: 'PGF_ARGUMENT_INVALID' } });
  });

  it('a body of 65 kB, and a name with a zero character', async () => {
    expect((await run('quick', { body: { params: { long: 'x'.repeat(65 * 1024) } } })).status).toBe(413);
    expect((await run('a\u0000b')).status).toBe(404);
  });
});
