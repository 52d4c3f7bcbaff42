import { beforeAll, describe, expect, it } from 'vitest';
import { examineJobs, listJobs, showJob } from '../../src/schedule/index.ts';
import { resolveConfig, type JobHandler } from '../../src/config/index.ts';
import { ScheduleScene, until } from './scene.ts';

interface Health {
  readonly name: string;
  readonly healthy: boolean;
  readonly problem: string | null;
}

/** How everything that tells it says a job is. */
async function toldOf(scene: ScheduleScene, name: string) {
  const [health] = await scene.db.query<Health>(
    'select jobname as name, healthy, problem from pgfresh.check_cron_job_health(array[$1::text])',
    [name],
  );
  const listed = (await listJobs(scene.db)).find((job) => job.name === name)!;
  const { state, problem, next_step: next } = await showJob(scene.db, name);
  expect([listed.state, listed.problem]).toEqual([state, problem]);
  expect(health!.problem).toBe(problem ?? (state === 'disabled' || state === 'paused' ? `it is ${state}` : null));
  return { state, problem, next, healthy: health!.healthy };
}

describe('truth 10: a job', () => {
  let scene: ScheduleScene;
  const check = async () => {
    const findings = await examineJobs(scene.db, { jobs: undefined, file: undefined });
    return findings.map(({ name, state, detail, code }) => [name, state, detail, code].filter(Boolean).join(' | '));
  };
  beforeAll(async () => {
    scene = await ScheduleScene.open();
    await scene.scheduler();
  });

  it('that fails says so everywhere, until it succeeds', async () => {
    await scene.db.query(`
      create table public.weather (good boolean); insert into public.weather values (false);
      create function public.moody() returns jsonb language sql as
        $$ select jsonb_build_object('success', good, 'message', 'the weather') from public.weather $$`);
    await scene.job('well');
    await scene.job('moody', { function_name: 'moody' });
    await scene.idle();
    expect(await toldOf(scene, 'moody')).toMatchObject({ state: 'ok', problem: null, healthy: true });
    expect(await check()).toEqual(['jobs | ok | 2 jobs, all of them are well']);
    for (const problem of ['its last run has failed: the weather', 'its last 2 runs have failed: the weather']) {
      await scene.advance('1 minute');
      await scene.idle();
      expect(await toldOf(scene, 'moody')).toMatchObject({
        state: 'failing',
        problem,
        healthy: false,
        next: 'See what it said: pgfresh jobs history moody --state failed. With --json it has the details.',
      });
    }
    expect(await check()).toEqual([
      'jobs | warning | 2 jobs, 1 of them is failing',
      'job moody | warning | The job "moody" fails: its last 2 runs have failed: the weather | PGF_JOB_FAILING',
    ]);
    await scene.db.query('update public.weather set good = true');
    await scene.advance('1 minute');
    await scene.idle();
    expect(await toldOf(scene, 'moody')).toMatchObject({ state: 'ok', healthy: true });
    await scene.db.query('update pgfresh.scheduled_jobs set enabled = false');
    expect(await toldOf(scene, 'moody')).toMatchObject({ state: 'disabled', healthy: false });
    await scene.db.query('delete from pgfresh.scheduled_jobs');
  });

  it('runs 6: whose handler has gone with the configuration is disabled, and that is no problem', async () => {
    await scene.job('removed', { kind: 'handler', function_name: 'removed', schedule: '@yearly' });
    expect(await toldOf(scene, 'removed')).toMatchObject({ state: 'problem' });
    await scene.db.query('update pgfresh.scheduled_jobs set enabled = false');
    expect(await toldOf(scene, 'removed')).toMatchObject({ state: 'disabled', problem: null });
    await scene.db.query('delete from pgfresh.scheduled_jobs');
  });

  it('whose run does not end is late', async () => {
    await scene.job('endless', { kind: 'handler', function_name: 'endless', schedule: '@yearly' });
    const handlers = { endless: (() => new Promise(() => {})) as JobHandler };
    const scheduler = await scene.scheduler(handlers, { drainMs: 1 });
    await scene.idle();
    await scene.db.query(`select pgfresh.trigger_scheduled_job('endless')`);
    await until(async () => (await showJob(scene.db, 'endless')).state === 'running');
    await scene.advance('5 minutes');
    expect(await toldOf(scene, 'endless')).toMatchObject({
      state: 'late',
      problem: 'its run has not ended for 00:05:00, and its time limit is 00:00:30',
      next: 'Cancel it: pgfresh jobs cancel endless',
      healthy: false,
    });
    await scheduler.stop();
    await scene.db.query('delete from pgfresh.scheduled_jobs');
  });
});

it('truth 10: jobs that no scheduler comes to are late, and check says so in one line', async () => {
  const scene = await ScheduleScene.open();
  await scene.job('one');
  await scene.job('two', { schedule: '@yearly' });
  expect(await toldOf(scene, 'one')).toMatchObject({ state: 'ok', healthy: true });
  await scene.advance('2 minutes');
  expect(await toldOf(scene, 'one')).toMatchObject({ state: 'late', problem: 'no scheduler has looked at it yet' });
  const scheduler = await scene.scheduler();
  await scene.idle();
  await scheduler.stop();
  expect(await toldOf(scene, 'one')).toMatchObject({ state: 'ok' });
  await scene.advance('3 minutes');
  expect(await toldOf(scene, 'one')).toMatchObject({
    state: 'late',
    problem: 'no scheduler has come to its slot, which is 00:02:00 late',
    healthy: false,
  });
  await scene.db.query(`select pgfresh.trigger_scheduled_job('two')`);
  await scene.advance('2 minutes');
  expect(await toldOf(scene, 'two')).toMatchObject({
    state: 'late',
    problem: 'no scheduler has begun its run, which is 00:02:00 late',
  });
  const findings = await examineJobs(scene.db, { jobs: undefined, file: undefined });
  expect(findings).toMatchObject([
    { name: 'jobs', state: 'warning', detail: '2 jobs, 2 of them are late' },
    { name: 'scheduler', state: 'warning', code: 'PGF_JOB_LATE', detail: 'no scheduler runs, and 2 jobs need one' },
  ]);
});

it('check says of jobs with handlers that no scheduler runs them, also where the configuration has the handlers', async () => {
  const scene = await ScheduleScene.open();
  const handler: JobHandler = async () => ({ success: true, message: 'done' });
  await scene.job('failing', { function_name: 'fail' });
  const scheduler = await scene.scheduler();
  await scene.idle();
  await scene.advance('1 minute');
  await scene.idle();
  await scene.job('handled', { kind: 'handler', function_name: 'handled', schedule: '@yearly', managed_by: 'config' });
  const check = async () => {
    const jobs = [{ name: 'handled', schedule: '@yearly', handler }];
    const findings = await examineJobs(scene.db, resolveConfig({ config: { jobs }, file: 'x.ts' }));
    return findings
      .filter(({ next }) => next !== 'Run "pgfresh migrate".')
      .map(({ name, detail }) => `${name}: ${detail}`);
  };
  const failing = 'job failing: The job "failing" fails: its last run has failed: no luck';
  expect(await check()).toEqual([
    'jobs: 2 jobs, 1 of them cannot run, 1 of them is failing',
    failing,
    'job handled: no scheduler that runs has the handler handled',
  ]);
  await scheduler.stop();
  expect(await check()).toEqual([
    'jobs: 2 jobs, 1 of them cannot run, 1 of them is failing',
    'scheduler: no scheduler runs, and 1 job needs one',
    failing,
  ]);
});

it('a job that failed, and was cancelled since, says why it failed', async () => {
  const scene = await ScheduleScene.open();
  const first = Promise.withResolvers<void>();
  let calls = 0;
  const handler: JobHandler = ({ signal }) => {
    if (calls++ === 0) throw new Error('no luck');
    first.resolve();
    return new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('aborted'))));
  };
  await scene.job('handled', { kind: 'handler', function_name: 'handled', schedule: '@yearly' });
  await scene.scheduler({ handled: handler });
  await scene.idle();
  await scene.db.query(`select pgfresh.trigger_scheduled_job('handled')`);
  await scene.idle();
  await scene.db.query(`select pgfresh.trigger_scheduled_job('handled')`);
  await first.promise;
  await scene.db.query(
    `select pgfresh.cancel_scheduled_run(id) from pgfresh.scheduled_job_runs where state = 'running'`,
  );
  await scene.idle();
  expect((await scene.story('handled')).map((run) => run.slice(6))).toEqual(['manual failed', 'manual cancelled']);
  expect(await toldOf(scene, 'handled')).toMatchObject({
    state: 'failing',
    problem: 'its last run has failed: no luck',
  });
});

it('truth 10: the details of a handler that throws have its stack, bounded and without passwords', async () => {
  const scene = await ScheduleScene.open();
  const deep = (depth: number): never => {
    if (depth > 0) return deep(depth - 1);
    throw new RangeError(`no answer of postgres://ann:s3cret@db:5432/x\nsecond line \0`);
  };
  Error.stackTraceLimit = 200;
  await scene.scheduler({ throwing: () => deep(150) });
  Error.stackTraceLimit = 10;
  await scene.job('throwing', { kind: 'handler', function_name: 'throwing' });
  await scene.idle();
  Error.stackTraceLimit = 200;
  await scene.advance('1 minute');
  await scene.idle();
  Error.stackTraceLimit = 10;
  const [run] = await scene.runs('throwing');
  const { error, stack } = run!.details as { error: string; stack: string };
  expect(run!.message).toBe('no answer of postgres://[redacted]@db:5432/x');
  expect(error).toBe('RangeError');
  expect(stack).toMatch(
    /^RangeError: no answer of postgres:\/\/\[redacted\]@db:5432\/x\n +at deep \(.*job-health\.test\.ts/,
  );
  expect(stack).not.toMatch(/s3cret|second line/);
  expect(stack.length).toBe(4_000);
});
