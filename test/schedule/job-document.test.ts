import { afterEach, beforeAll, expect, it } from 'vitest';
import type { JobHandler } from '../../src/config/index.ts';
import { endOfRun, retryOf, triggerJob } from '../../src/schedule/index.ts';
import { openDatabase } from '../harness/database.ts';
import { Proxy } from '../harness/proxy.ts';
import { expectRefusal } from '../harness/refusal.ts';
import { openSession } from '../harness/session.ts';
import { ScheduleScene, until } from './scene.ts';

let scene: ScheduleScene;
let answer: () => ReturnType<JobHandler>;
beforeAll(async () => {
  scene = await ScheduleScene.open();
  await scene.scheduler({ answering: () => answer() });
});
afterEach(async () => {
  expect(scene.problems).toEqual([]);
  await scene.db.query('delete from pgfresh.scheduled_jobs');
  await until(async () => (await scene.value(`(select count(*)::int from pgfresh.scheduled_job_runs)`)) === 0);
});

const sleeping = `exists (select from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database())`;
const sleeper = (name: string) =>
  `create or replace function public.${name}() returns jsonb language plpgsql as $$
   begin perform pg_sleep(300); return '{"success": true, "message": "slept"}'; end $$`;

it('truth 14: a function that says no, without details, ends at once and is tried again', async () => {
  await scene.db.query(`
    create function public.says_no() returns jsonb language plpgsql as $$
    begin
      insert into public.done (what) values ('no');
      return '{"success": false, "message": "not today"}';
    end $$`);
  await scene.job('no', { function_name: 'says_no', schedule: '@yearly', retries: 1, retry_base: '1 hour' });
  const { run_id: run } = await triggerJob(scene.db, 'no');
  const ended = await endOfRun(scene.db, run, AbortSignal.timeout(10_000));
  expect(ended).toMatchObject({ state: 'failed', success: false, message: 'not today', details: null });
  expect(await scene.value(`(select count(*)::int from public.done where what = 'no')`)).toBe(1);
  const retry = await retryOf(scene.db, run);
  expect(retry).toMatchObject({ attempt: 2 });
  expect(retry!.run_at.getTime() - (await scene.value<Date>('pgfresh.clock()')).getTime()).toBe(3_600_000);
  expect(await retryOf(scene.db, retry!.run_id)).toBeUndefined();
});

it.for([
  ['null details', { success: false, message: 'no', details: null }, { message: 'no', details: null }],
  ['keys besides', { success: true, message: 'yes', rows: 5 }, { message: 'yes', details: { rows: 5 } }],
  [
    'texts that PostgreSQL cannot keep',
    { success: true, message: 'a\0b', details: { 'k\0': ['\ud800', '\0'] } },
    { message: 'a\ufffdb', details: { 'k\ufffd': ['\ufffd', '\ufffd'] } },
  ],
] as const)('truth 14: a handler that returns %s ends at once', async ([, result, kept]) => {
  answer = () => result;
  await scene.job('answering', { kind: 'handler', function_name: 'answering', schedule: '@yearly' });
  const { run_id: run } = await triggerJob(scene.db, 'answering');
  expect(await endOfRun(scene.db, run, AbortSignal.timeout(10_000))).toMatchObject({
    ...kept,
    success: result.success,
  });
});

it('truth 14: a run whose details the database refuses ends without them', async () => {
  await scene.db.query(
    `alter table pgfresh.scheduled_job_runs add constraint odd check (details ->> 'odd' is null) not valid`,
  );
  answer = () => ({ success: true, message: 'done', details: { odd: true } });
  await scene.job('answering', { kind: 'handler', function_name: 'answering', schedule: '@yearly' });
  const { run_id: run } = await triggerJob(scene.db, 'answering');
  expect(await endOfRun(scene.db, run, AbortSignal.timeout(10_000))).toMatchObject({ success: true, details: null });
  expect(scene.problems.splice(0)).toEqual([expect.stringMatching(/^end: .*violates check constraint "odd"/)]);
  await scene.db.query('alter table pgfresh.scheduled_job_runs drop constraint odd');
});

it('runs 1: a run whose message the database refuses too has failed, once', async () => {
  await scene.db.query(
    `alter table pgfresh.scheduled_job_runs add constraint odd check (message <> 'odd' and details ->> 'odd' is null) not valid`,
  );
  answer = () => ({ success: true, message: 'odd', details: { odd: true } });
  await scene.job('odd', { kind: 'handler', function_name: 'answering', schedule: '@yearly' });
  const { run_id: run } = await triggerJob(scene.db, 'odd');
  expect(await endOfRun(scene.db, run, AbortSignal.timeout(10_000))).toMatchObject({
    success: false,
    message: expect.stringMatching(/^its end could not be recorded: .*violates check constraint "odd"/),
  });
  expect(scene.problems.splice(0)).toHaveLength(2);
  await scene.db.query('alter table pgfresh.scheduled_job_runs drop constraint odd');
});

it('truth 10: a run that ends while the database is away keeps its details', async () => {
  const { proxy, url } = await Proxy.before(scene.url);
  const begun = Promise.withResolvers<void>();
  const goOn = Promise.withResolvers<void>();
  const away = async () => {
    begun.resolve();
    await goOn.promise;
    return { success: true, message: 'done', details: { rows: 3 } };
  };
  const scheduler = await scene.scheduler({ away }, { db: openDatabase(url, { events: scene.events }) });
  await scene.job('away', { kind: 'handler', function_name: 'away', schedule: '@yearly' });
  const { run_id: run } = await triggerJob(scene.db, 'away');
  await begun.promise;
  proxy.judge = (_, way) => (way === 'to server' ? 'cut' : 'pass');
  goOn.resolve();
  await until(() => scene.problems.some((problem) => problem.startsWith('end: ')));
  proxy.judge = () => 'pass';
  expect(await endOfRun(scene.db, run, AbortSignal.timeout(10_000))).toMatchObject({ details: { rows: 3 } });
  await scheduler.stop();
  await proxy.close();
  scene.problems.splice(0);
});

it('truth 14: deleting or disabling a job returns at once while it runs, and its run ends', async () => {
  await scene.db.query(sleeper('deleted'));
  const operator = await openSession(scene.url);
  await operator.query(`set lock_timeout = '2s'`);
  for (const statement of [
    `update pgfresh.scheduled_jobs set enabled = false where name = 'long'`,
    `delete from pgfresh.scheduled_jobs where name = 'long'`,
  ]) {
    await scene.job('long', { function_name: 'deleted', schedule: '@yearly', timeout: '10 minutes', retries: 3 });
    const { run_id: run } = await triggerJob(scene.db, 'long');
    await until(() => scene.value(sleeping));
    await operator.query(statement);
    // What tidy does is not held up either.
    await operator.query(
      'select pgfresh_engine.sync_own_jobs(), pgfresh_engine.prune_scheduled_runs(), pgfresh_engine.count_job_statistics()',
    );
    if (statement.startsWith('update')) {
      expect(await scene.value(sleeping)).toBe(true);
      await operator.query('select pgfresh.cancel_scheduled_run($1::bigint)', [run]);
      await until(async () => !(await scene.value(sleeping)));
      await until(async () => (await scene.story('long'))[0] === '12:00 manual cancelled');
      await operator.query(`delete from pgfresh.scheduled_jobs`);
    }
    await until(async () => !(await scene.value(sleeping)));
    await until(async () => (await scene.value('(select count(*)::int from pgfresh.scheduled_job_runs)')) === 0);
    expect(await scene.value(`(select count(*)::int from pg_proc where proname like 'run_as_%')`)).toBe(0);
  }
});

it('truth 14: a handler whose job is deleted is told to stop, and nothing of it is left', async () => {
  const stopped = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  await scene.scheduler({
    held: ({ signal }) => {
      begun.resolve();
      signal.addEventListener('abort', () => stopped.resolve());
      return new Promise(() => {});
    },
  });
  await scene.job('held', { kind: 'handler', function_name: 'held', schedule: '@yearly', timeout: '10 minutes' });
  await triggerJob(scene.db, 'held');
  await begun.promise;
  await scene.db.query('delete from pgfresh.scheduled_jobs');
  await stopped.promise;
});

it('truth 14: a job that deletes itself is gone when it has ended', async () => {
  await scene.db.query(`
    create function public.suicide() returns jsonb language plpgsql as $$
    begin
      delete from pgfresh.scheduled_jobs where name = 'suicide';
      insert into public.done (what) values ('suicide');
      return '{"success": true, "message": "gone"}';
    end $$`);
  await scene.job('suicide', { function_name: 'suicide', schedule: '@yearly' });
  await triggerJob(scene.db, 'suicide');
  await until(async () => (await scene.value(`(select count(*)::int from public.done where what = 'suicide')`)) === 1);
});

it('truth 14: parameters for a function without arguments are refused at the call', async () => {
  await scene.job('plain', { function_name: 'fail', schedule: '@yearly' });
  const { message } = await expectRefusal(triggerJob(scene.db, 'plain', { days: 7 }), 'PGF_JOB_INVALID');
  expect(message).toMatch(/params: (public\.)?fail\(\) takes none$/);
  expect(await scene.story('plain')).toEqual([]);
  expect(await triggerJob(scene.db, 'plain', {})).toMatchObject({ success: true });
});

it('truth 14: queries on the schema of scheduled_jobs run unchanged', async () => {
  const session = await openSession(scene.url);
  await session.query('set search_path = pgfresh, public');
  await session.query(`
    insert into scheduled_jobs (name, function_name, schedule, timezone, description)
    values ('daily_cleanup', 'work', '0 3 * * *', 'America/New_York', 'Clean up')`);
  const columns =
    'id, name, description, function_name, schedule, timezone, enabled, last_run_at, created_at, updated_at';
  const [before] = await session.query(`select ${columns} from scheduled_jobs`);
  expect(before).toMatchObject({ name: 'daily_cleanup', last_run_at: null });
  const { run_id: run } = await triggerJob(scene.db, 'daily_cleanup');
  const ended = await endOfRun(scene.db, run, AbortSignal.timeout(10_000));
  const [after] = await session.query(`select ${columns} from scheduled_jobs`);
  expect(after).toEqual({ ...before, last_run_at: ended!.started_at });
  expect(
    await session.query(
      'select name, enabled, last_run_at, last_run_success, total_runs::int, success_rate_percent::float8 as rate from scheduled_job_status',
    ),
  ).toEqual([
    {
      name: 'daily_cleanup',
      enabled: true,
      last_run_at: ended!.started_at,
      last_run_success: true,
      total_runs: 1,
      rate: 100,
    },
  ]);
  expect(
    await session.query(
      `select started_at, completed_at, success, message, triggered_by from scheduled_job_runs
       where job_id = $1::int order by started_at desc limit 10`,
      [before!['id']],
    ),
  ).toMatchObject([{ success: true, message: 'worked', triggered_by: 'manual' }]);
  expect(
    await session.query(
      `select sj.name, count(*)::int as total_runs, sum(case when success then 1 else 0 end)::float / count(*) * 100 as success_rate
       from scheduled_job_runs r join scheduled_jobs sj on r.job_id = sj.id
       where r.started_at > pgfresh.clock() - interval '7 days' group by sj.name`,
    ),
  ).toEqual([{ name: 'daily_cleanup', total_runs: 1, success_rate: 100 }]);
});
