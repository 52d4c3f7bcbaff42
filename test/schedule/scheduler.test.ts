import { afterEach, beforeAll, expect, it } from 'vitest';
import type { JobContext, JobResult } from '../../src/config/index.ts';
import { ScheduleScene, until } from './scene.ts';

let scene: ScheduleScene;

/** Calls of the handler that have not been answered yet. */
const calls: { context: JobContext; answer: (result: JobResult | Error) => void }[] = [];
const handlers = {
  ask: (context: JobContext): Promise<JobResult> =>
    new Promise((resolve, reject) => {
      calls.push({ context, answer: (result) => (result instanceof Error ? reject(result) : resolve(result)) });
    }),
};
const good: JobResult = { success: true, message: 'good' };
const called = async () => {
  await until(() => calls.length > 0);
  return calls.shift()!;
};

beforeAll(async () => {
  scene = await ScheduleScene.open();
  await scene.scheduler(handlers);
});

afterEach(async () => {
  expect(scene.problems).toEqual([]);
  await scene.db.query('delete from pgfresh.scheduled_jobs');
  await scene.clock.set('2026-01-05T12:00:00Z');
  await scene.db.query('truncate public.done');
  calls.length = 0;
});

const minutes = async (count: number): Promise<void> => {
  for (let minute = 0; minute < count; minute++) {
    await scene.advance('1 minute');
    await scene.idle();
  }
};

it('runs each slot once, in its time, and nothing of the past', async () => {
  await scene.job('each-minute', { params: { a: 1 } });
  await scene.idle();
  expect(await scene.story('each-minute')).toEqual([]);
  await minutes(3);
  expect(await scene.story('each-minute')).toEqual(['12:01 succeeded', '12:02 succeeded', '12:03 succeeded']);
  expect(await scene.value(`array(select params ->> 'a' from public.done)`)).toEqual(['1', '1', '1']);
});

it('records how late a run began, and how long it took', async () => {
  await scene.job('late');
  await scene.idle();
  await scene.advance('1 minute 2.5 seconds');
  await scene.idle();
  expect(await scene.runs('late')).toMatchObject([{ state: 'succeeded', late: 2_500, message: 'worked' }]);
});

it('keeps nothing of a function that fails, and says why it failed', async () => {
  await scene.job('failing', { function_name: 'fail' });
  await scene.idle();
  await minutes(1);
  expect(await scene.runs('failing')).toMatchObject([
    { state: 'failed', message: 'no luck', details: { sqlstate: 'XX123' } },
  ]);
  expect(await scene.value('(select count(*) from public.done)')).toBe(0);
});

it('tries again with growing pauses, as often as the job says, and skips slots meanwhile', async () => {
  await scene.job('retried', { function_name: 'fail', retries: 2, retry_base: '45 seconds' });
  await scene.idle();
  await minutes(1);
  for (const seconds of [45, 15, 60]) {
    await scene.advance(`${seconds} seconds`);
    await scene.idle();
  }
  expect(await scene.story('retried')).toContain('12:01 waiting attempt 3');
  await scene.advance('15 seconds');
  await scene.idle();
  expect(await scene.story('retried')).toEqual([
    '12:01 failed',
    '12:01 failed attempt 2',
    '12:01 failed attempt 3',
    '12:02-12:03 2 overlap',
  ]);
});

it('gives a handler its slot, its parameters and a log, and takes what it returns', async () => {
  const logged: string[] = [];
  scene.events.on('job.logged', ({ job, message }) => void logged.push(`${job}: ${message}`));
  await scene.job('asking', { kind: 'handler', function_name: 'ask', params: { b: 2 } });
  await scene.idle();
  await scene.advance('1 minute');
  const { context, answer } = await called();
  expect(context).toMatchObject({
    job: 'asking',
    slot: new Date('2026-01-05T12:01:00Z'),
    attempt: 1,
    params: { b: 2 },
  });
  context.log('at work');
  expect(await context.db.query('select 1 as one')).toEqual([{ one: 1 }]);
  answer({ success: true, message: 'good', details: { rows: 3 } });
  await scene.idle();
  expect(await scene.runs('asking')).toMatchObject([{ state: 'succeeded', message: 'good', details: { rows: 3 } }]);
  expect(logged).toEqual(['asking: at work']);
});

it('takes a handler that throws, or returns something else, for one that failed', async () => {
  await scene.job('asking', { kind: 'handler', function_name: 'ask' });
  await scene.idle();
  await scene.advance('1 minute');
  (await called()).answer(new TypeError('not today'));
  await scene.idle();
  await scene.advance('1 minute');
  (await called()).answer({ success: 'yes' } as unknown as JobResult);
  await scene.idle();
  expect(await scene.runs('asking')).toMatchObject([
    { state: 'failed', message: 'not today', details: { error: 'TypeError' } },
    { state: 'failed', message: expect.stringContaining('expected { success') },
  ]);
});

it('aborts a handler whose time is over, and goes on without it', async () => {
  await scene.job('slow', { kind: 'handler', function_name: 'ask', timeout: '20 milliseconds' });
  await scene.idle();
  await scene.advance('1 minute');
  const { context } = await called();
  await scene.idle();
  expect(context.signal.aborted).toBe(true);
  expect(await scene.runs('slow')).toMatchObject([
    { state: 'failed', message: 'it took longer than its time limit of 20 ms' },
  ]);
});

it('ends a function whose time is over', async () => {
  await scene.db.query(
    `create or replace function public.sleep() returns jsonb language sql as $$ select jsonb_build_object('success', true, 'message', pg_sleep(20)::text) $$`,
  );
  await scene.job('slow', { function_name: 'sleep', timeout: '50 milliseconds' });
  await scene.idle();
  await scene.advance('1 minute');
  await scene.idle();
  expect(await scene.runs('slow')).toMatchObject([{ state: 'failed', details: { sqlstate: '57014' } }]);
});

it('skips slots that come while a run is under way, in one row', async () => {
  await scene.job('long', { kind: 'handler', function_name: 'ask' });
  await scene.idle();
  await scene.advance('1 minute');
  const { answer } = await called();
  for (const _ of [1, 2, 3]) {
    await scene.advance('1 minute');
    await until(
      async () => (await scene.value(`(select slot > pgfresh.clock() from pgfresh_engine.job_cursor)`)) === true,
    );
  }
  answer(good);
  await scene.idle();
  expect(await scene.story('long')).toEqual(['12:01 succeeded', '12:02-12:04 3 overlap']);
});

it('queues one slot behind the run that is under way, if the job says so', async () => {
  await scene.job('long', { kind: 'handler', function_name: 'ask', overlap: 'queue' });
  await scene.idle();
  await scene.advance('1 minute');
  const { answer } = await called();
  for (const _ of [1, 2]) {
    await scene.advance('1 minute');
    await until(
      async () => (await scene.value(`(select slot > pgfresh.clock() from pgfresh_engine.job_cursor)`)) === true,
    );
  }
  expect(await scene.story('long')).toEqual(['12:01 running', '12:02 queued', '12:03-12:03 1 overlap']);
  answer(good);
  (await called()).answer(good);
  await scene.idle();
  expect(await scene.story('long')).toEqual(['12:01 succeeded', '12:02 succeeded', '12:03-12:03 1 overlap']);
});

it('records the slots of a job that is disabled or paused, and does not make up for them', async () => {
  await scene.job('held');
  await scene.idle();
  await scene.db.query('update pgfresh.scheduled_jobs set enabled = false');
  await minutes(2);
  await scene.db.query('update pgfresh.scheduled_jobs set enabled = true');
  await scene.idle();
  await minutes(1);
  await scene.db.query(`update pgfresh.scheduled_jobs set paused_until = '2026-01-05T12:06:00Z'`);
  await minutes(3);
  expect(await scene.story('held')).toEqual([
    '12:01-12:02 2 disabled',
    '12:03 succeeded',
    '12:04-12:05 2 paused',
    '12:06 succeeded',
  ]);
});

it('does not run on blackout dates of the zone of the job', async () => {
  await scene.clock.set('2026-12-24T22:58:30Z');
  await scene.job('holiday', { timezone: 'Europe/Berlin', blackout_dates: ['2026-12-25'] });
  await scene.idle();
  await minutes(3);
  expect(await scene.story('holiday')).toEqual(['22:59 succeeded', '23:00-23:01 2 blackout']);
});

it('shows what is wrong with a job, and goes on with the others', async () => {
  await scene.job('good');
  const bad = await scene.job('bad');
  await scene.idle();
  // What a newer PostgreSQL or another version of Node.js may come to know, or not.
  await scene.db.query('alter table pgfresh.scheduled_jobs disable trigger b_complete_job');
  await scene.db.query(`update pgfresh.scheduled_jobs set timezone = 'Moon/Tranquility' where id = $1::int`, [bad]);
  await scene.db.query('alter table pgfresh.scheduled_jobs enable trigger b_complete_job');
  await scene.idle();
  await minutes(1);
  expect(await scene.story('good')).toEqual(['12:01 succeeded']);
  expect(await scene.story('bad')).toEqual([]);
  const [status] = await scene.db.query(`select state, problem from pgfresh.scheduled_job_status where name = 'bad'`);
  expect(status).toMatchObject({ state: 'problem', problem: expect.stringContaining('Moon/Tranquility') });
  await scene.db.query(`update pgfresh.scheduled_jobs set timezone = 'UTC' where id = $1::int`, [bad]);
  await scene.idle();
  await minutes(1);
  expect(await scene.story('bad')).toEqual(['12:02 succeeded']);
  expect(await scene.value(`(select problem from pgfresh.scheduled_jobs where name = 'bad')`)).toBeNull();
});

it.for([
  [`pgfresh.clock() + interval '30 minutes'`, '13:00'],
  [`pgfresh.clock() + interval '2 hours'`, null],
  [`'infinity'`, null],
] as const)('says when a job runs next that is paused until %s, if that is known', async ([end, next]) => {
  await scene.job('daily', { schedule: '0 13 * * *' });
  await scene.idle();
  await scene.db.query(`update pgfresh.scheduled_jobs set paused_until = ${end}`);
  await scene.idle();
  const nextRun = `(select to_char(next_run_at at time zone 'UTC', 'HH24:MI') from pgfresh.scheduled_job_status where name = 'daily')`;
  expect(await scene.value(nextRun)).toBe(next);
});

it('runs a job with bounds for its period after each end, sooner or later by how it ended', async () => {
  await scene.job('rhythm', {
    kind: 'handler',
    function_name: 'ask',
    every_min: '10 minutes',
    every_max: '15 minutes',
    failure_min: '30 minutes',
    failure_max: '30 minutes',
  });
  await scene.idle();
  const wait = () =>
    scene.value<number>(
      '(select extract(epoch from slot - pgfresh.clock())::float8 / 60 from pgfresh_engine.job_cursor)',
    );
  const first = await wait();
  expect(first).toBeGreaterThanOrEqual(10);
  expect(first).toBeLessThanOrEqual(15);
  await scene.advance('15 minutes');
  const one = await called();
  expect(await scene.value('(select due_at::text from pgfresh_engine.job_cursor)')).toBe('infinity');
  await scene.advance('3 minutes');
  one.answer(good);
  await scene.idle();
  const second = await wait();
  expect(second).toBeGreaterThanOrEqual(10);
  expect(second).toBeLessThanOrEqual(15);
  await scene.advance('15 minutes');
  (await called()).answer({ success: false, message: 'bad' });
  await scene.idle();
  expect(await wait()).toBe(30);
  expect((await scene.runs('rhythm')).map(({ state }) => state)).toEqual(['succeeded', 'failed']);
});

it('leaves a job whose handler it does not have to others', async () => {
  await scene.job('elsewhere', { kind: 'handler', function_name: 'other' });
  await scene.job('here');
  await until(
    async () =>
      (await scene.value(`(select due_at > '-infinity' from pgfresh_engine.job_cursor where handler is null)`)) ===
      true,
  );
  const [status] = await scene.db.query(
    `select state, problem from pgfresh.scheduled_job_status where name = 'elsewhere'`,
  );
  expect(status).toEqual({ state: 'problem', problem: 'no scheduler that runs has the handler other' });
  await scene.advance('1 minute');
  await until(async () => (await scene.story('here')).includes('12:01 succeeded'));
  expect(await scene.story('elsewhere')).toEqual([]);
  expect(await scene.value('(select due_at::text from pgfresh_engine.job_cursor where handler is not null)')).toBe(
    '-infinity',
  );
});

it('runs a job by hand, which leaves its next slot alone', async () => {
  await scene.job('byhand', { params: { a: 1 }, enabled: false, schedule: '0 3 * * *' });
  await scene.idle();
  const before = await scene.value('(select slot::text from pgfresh_engine.job_cursor)');
  const answer = await scene.value<object>(`pgfresh.trigger_scheduled_job('byhand', '{"a": 5}')`);
  expect(answer).toMatchObject({
    success: true,
    run_id: expect.any(Number),
    job_name: 'byhand',
    queued: false,
    schedulers: 1,
    message: 'accepted',
  });
  await scene.idle();
  expect(await scene.story('byhand')).toEqual(['12:00 manual succeeded']);
  expect(await scene.value(`array(select params ->> 'a' from public.done)`)).toEqual(['5']);
  expect(await scene.value('(select slot::text from pgfresh_engine.job_cursor)')).toBe(before);
});

it('does not run a job by hand beside another run of it', async () => {
  await scene.job('busy', { kind: 'handler', function_name: 'ask' });
  await scene.idle();
  await scene.advance('1 minute');
  const { answer } = await called();
  const trigger = () => scene.value<Record<string, unknown>>(`pgfresh.trigger_scheduled_job('busy')`);
  expect(await trigger()).toMatchObject({
    success: false,
    reason: 'overlap',
    run_id: expect.any(Number),
    job_name: 'busy',
  });
  await scene.db.query(`update pgfresh.scheduled_jobs set overlap = 'queue'`);
  expect(await trigger()).toMatchObject({ success: true, queued: true });
  expect(await trigger()).toMatchObject({ success: false, reason: 'overlap' });
  answer(good);
  const second = await called();
  expect(second.context).toMatchObject({ slot: null, attempt: 1 });
  second.answer(good);
  await scene.idle();
  expect(await scene.story('busy')).toEqual(['12:01 succeeded', '12:01 manual succeeded']);
});

it('cancels runs that wait and runs that are under way, for good', async () => {
  await scene.db.query(
    `create or replace function public.sleep() returns jsonb language sql as $$ select jsonb_build_object('success', true, 'message', pg_sleep(20)::text) $$`,
  );
  await scene.job('sleeper', { function_name: 'sleep', retries: 3, overlap: 'queue' });
  await scene.job('waiter', { kind: 'handler', function_name: 'ask', retries: 3 });
  await scene.idle();
  await scene.advance('1 minute');
  const { context } = await called();
  const running = (name: string) =>
    scene.value<number | null>(
      `(select r.id from pgfresh.scheduled_job_runs as r join pgfresh.scheduled_jobs as j on j.id = r.job_id where j.name = $1::text and r.state = 'running')`,
      [name],
    );
  await until(async () => (await running('sleeper')) !== null);
  const { run_id } = await scene.value<{ run_id: number }>(`pgfresh.trigger_scheduled_job('sleeper')`);
  const cancel = (run: number | null) => scene.value<object>('pgfresh.cancel_scheduled_run($1::bigint)', [run]);
  expect(await cancel(run_id)).toMatchObject({ success: true, state: 'cancelled', job_name: 'sleeper' });
  expect(await cancel(run_id)).toMatchObject({ success: false, state: 'cancelled' });
  expect(await cancel(await running('sleeper'))).toMatchObject({ success: true, state: 'cancelling' });
  expect(await cancel(await running('waiter'))).toMatchObject({ success: true, state: 'cancelling' });
  await scene.idle();
  expect(context.signal.aborted).toBe(true);
  expect(await scene.story('sleeper')).toEqual(['12:01 cancelled', '12:01 manual cancelled']);
  expect(await scene.story('waiter')).toEqual(['12:01 cancelled']);
});

it('backfills slots one after the other, at its rate, behind the slots that come', async () => {
  await scene.job('filled', { schedule: '*/5 * * * *' });
  await scene.idle();
  const slots = ['2026-01-05T11:00:00Z', '2026-01-05T11:05:00Z', '2026-01-05T11:10:00Z'];
  const backfill = () => scene.value<object>(`pgfresh.backfill_scheduled_job('filled', $1::timestamptz[], 1)`, [slots]);
  expect(await backfill()).toEqual({ success: true, job_name: 'filled', queued: 3, skipped: 0, forgotten: 0 });
  await scene.idle();
  expect(await scene.story('filled')).toEqual([
    '11:00 backfill succeeded',
    '11:05 backfill waiting',
    '11:10 backfill queued',
  ]);
  await minutes(1);
  expect((await scene.story('filled')).slice(1)).toEqual(['11:05 backfill succeeded', '11:10 backfill waiting']);
  expect(await backfill()).toEqual({ success: true, job_name: 'filled', queued: 0, skipped: 3, forgotten: 0 });
  await scene.advance('4 minutes');
  await scene.idle();
  expect(await scene.story('filled')).toEqual([
    '11:00 backfill succeeded',
    '11:05 backfill succeeded',
    '11:10 backfill succeeded',
    '12:05 succeeded',
  ]);
});
