import { beforeAll, expect, it } from 'vitest';
import type { scheduleFunctions } from '../harness/called-functions.ts';
import type { Queryable } from '../../src/database/index.ts';
import { expectNoChange, expectRefusal } from '../harness/refusal.ts';
import { openSession } from '../harness/session.ts';
import { createLogin } from '../harness/login.ts';
import { ScheduleScene } from './scene.ts';
import { inSchema } from '../harness/schemas.ts';

type Expected = { readonly refuses: `PGF_${string}` } | { readonly sqlState: string } | { readonly answers: unknown };

const argument: Expected = { refuses: 'PGF_ARGUMENT_INVALID' };
const unknownJob: Expected = { refuses: 'PGF_JOB_UNKNOWN' };
const unknownRun: Expected = { refuses: 'PGF_RUN_UNKNOWN' };
const lease: Expected = { refuses: 'PGF_LEASE_LOST' };
const notOfThatType: Expected = { sqlState: '22P02' };
const answers = (answer: unknown): Expected => ({ answers: answer });

const request = `'00000000-0000-0000-0000-000000000001'`;
/** 10 kB. */
const long = `repeat('x', 10240)`;
const past = `now() - interval '1 hour'`;
const names = (rest: string): (readonly [string, Expected])[] =>
  ['null', `''`, `'JOB'`, `E'job\\n'`, long, `'''; drop schema pgfresh cascade; --'`].map(
    (name) => [`${name}${rest}`, unknownJob] as const,
  );

/** Arguments that make no sense, and what each call does. Nothing else happens in any of them. `:run` is a run under way, and `:scheduler` whose it is. */
const cases: Record<(typeof scheduleFunctions)[number], readonly (readonly [string, Expected])[]> = {
  trigger_scheduled_job: [
    ...names(''),
    [`'job', '[]'`, argument],
    [`'job', '1'`, argument],
    [`'job', '{'`, notOfThatType],
    [`'job', jsonb_build_object('a', repeat('x', 70000))`, argument],
  ],
  cancel_scheduled_run: [
    ['null', unknownRun],
    ['0', unknownRun],
    ['-1', unknownRun],
    ['9223372036854775807', unknownRun],
    [`'x'`, notOfThatType],
  ],
  backfill_scheduled_job: [
    ...names(`, array[date_trunc('minute', ${past})]`),
    [`'job', null`, argument],
    [`'job', '{}'`, argument],
    [`'job', array[null]::timestamptz[]`, argument],
    [`'job', array['infinity', '-infinity']::timestamptz[]`, argument],
    [`'job', array[date_trunc('minute', pgfresh.clock() + interval '1 hour')]`, argument],
    [`'job', array['2026-01-01T00:00:01Z']::timestamptz[]`, argument],
    [`'job', (select array_agg('2026-01-01'::timestamptz) from generate_series(1, 10001))`, argument],
    [`'job', array['2026-01-01']::timestamptz[], 0`, argument],
    [`'job', array['2026-01-01']::timestamptz[], null`, argument],
    [`'job', array['2026-01-01']::timestamptz[], 6001`, argument],
  ],
  check_cron_job_health: [[`array['nobody', null]`, answers('(nobody,,,f,"there is no such job")')]],
  count_job_statistics: [
    ['null', argument],
    ['0', argument],
    ['10001', argument],
  ],
  prune_pairs: [
    ['null', argument],
    [`'0'`, argument],
    [`'1 hour'`, argument],
    [`'-90 days'`, argument],
  ],
  prune_usage: [
    ['null', argument],
    [`'0'`, argument],
    [`'366 days'`, argument],
    [`'4000 days'`, argument],
  ],
  prune_scheduled_runs: [
    ['null', argument],
    [`'0'`, argument],
    [`'-1 day'`, argument],
    [`'30 days', 0`, argument],
    [`'30 days', 10, null`, argument],
  ],
  sync_own_jobs: [['null', { sqlState: '42883' }]],
  serve_jobs: [
    [':scheduler, null, null', argument],
    [`:scheduler, '{null}', '2026a'`, argument],
    [`:scheduler, array_fill('a'::text, array[10001]), '2026a'`, argument],
    [`:scheduler, '{}', null`, argument],
    [`:scheduler, '{}', 'newest'`, argument],
    [`null, '{}', '2026a'`, lease],
    [`0, '{}', '2026a'`, lease],
  ],
  recover_scheduled_runs: [
    ['null', answers(0)],
    ['0', answers(0)],
  ],
  due_slots: [[`'{}', true, '2026a', -1`, { sqlState: '2201W' }]],
  settle_slots: [
    [`null, ${request}, '[]', 1`, lease],
    [`0, ${request}, '[]', 1`, lease],
    [`:scheduler, null, '[]', 1`, argument],
    [`:scheduler, ${request}, null, 1`, argument],
    [`:scheduler, ${request}, '{}', 1`, argument],
    [`:scheduler, ${request}, (select jsonb_agg('{}'::jsonb) from generate_series(1, 1001)), 1`, argument],
    [`:scheduler, ${request}, '[{"job": "x"}]', 1`, notOfThatType],
  ],
  take_waiting_runs: [
    [`null, ${request}, '{}', true, 1`, lease],
    [`0, ${request}, '{}', true, 1`, lease],
    [`:scheduler, null, '{}', true, 1`, argument],
    [`:scheduler, ${request}, '{}', true, -1`, { sqlState: '2201W' }],
  ],
  schedule_pause: [[`array['x']::int[], true`, notOfThatType]],
  do_run: [
    ['null, null', answers(null)],
    [':run, 0', answers(null)],
    [':run, null', answers(null)],
    ['0, :scheduler', answers(null)],
  ],
  end_run: [
    [`:run, :job, :scheduler, null, ''`, argument],
    [`:run, :job, :scheduler, 'done', ''`, argument],
    [`:run, :job, 0, 'succeeded', ''`, answers(false)],
    [`:run, 0, :scheduler, 'succeeded', ''`, answers(false)],
    [`:run, null, :scheduler, 'succeeded', ''`, answers(false)],
    [`null, :job, :scheduler, 'succeeded', ''`, answers(false)],
  ],
};

let scene: ScheduleScene;
let session: Queryable;
let fill: (text: string) => string;

beforeAll(async () => {
  scene = await ScheduleScene.open();
  const job = await scene.job('job', { enabled: false });
  const scheduler = await scene.value<number>(
    `pgfresh_engine.serve_jobs(pgfresh_engine.register_process('scheduler', 'test'), '{}', '2026a')`,
  );
  await scene.value(`pgfresh.trigger_scheduled_job('job')`);
  const run = await scene.value<number>(
    `(select run_id from pgfresh_engine.take_waiting_runs($1::bigint, gen_random_uuid(), '{}', true, 1))`,
    [scheduler],
  );
  session = await openSession(scene.url);
  const words = { run, job, scheduler };
  fill = (text) =>
    Object.entries(words).reduce((filled, [word, id]) => filled.replaceAll(`:${word}`, String(id)), text);
});

it.each(Object.entries(cases))('%s refuses what makes no sense, and nothing changes', async (name, calls) => {
  await expectNoChange(scene.db, async () => {
    for (const [text, expected] of calls) {
      const call = session.query<{ answer: unknown }>(`select ${inSchema(name)}(${fill(text)}) as answer`);
      if ('refuses' in expected) await expectRefusal(call, expected.refuses);
      else if ('sqlState' in expected) await expect(call).rejects.toMatchObject({ code: expected.sqlState });
      else expect((await call)[0]?.answer).toEqual(expected.answers);
    }
  });
  // Nor has the function of the job been called.
  expect(await scene.value('(select count(*)::int from public.done)')).toBe(0);
});

it('lets nobody ask for a run of a job that is not his, by whatever way', async () => {
  const stranger = await openSession((await createLogin(scene.url, 'pgfresh_scheduler')).url);
  for (const call of [
    `select pgfresh.trigger_scheduled_job('job')`,
    `select pgfresh.cancel_scheduled_run(${fill(':run')})`,
    `select pgfresh.backfill_scheduled_job('job', array['2026-01-01']::timestamptz[])`,
    `insert into pgfresh_engine.request (verb, args) values ('trigger', '{"name": "job", "requested_by": "postgres"}')`,
    `insert into pgfresh_engine.request (verb, args) values ('cancel', '{"name": "his", "run_id": ${fill(':run')}}')`,
  ])
    await expectRefusal(stranger.query(call), 'PGF_JOB_RIGHT');
  await expect(
    stranger.query(`select pgfresh_engine.start_requested_run('job', null, 'postgres')`),
  ).rejects.toMatchObject({
    code: '42501',
  });
  await expect(
    stranger.query(`select pgfresh_engine.settle_slots(1, gen_random_uuid(), '[]', 1)`),
  ).rejects.toMatchObject({
    code: '42501',
  });
});

it('lets a member of the role ask for a run of a job of its own, and see it', async () => {
  const { url, name } = await createLogin(scene.url, 'pgfresh_scheduler');
  await scene.db.query(`grant ${name} to current_user`);
  const member = await openSession(url);
  await member.query(`create function pg_temp.nothing() returns int language sql as 'select 1'`);
  await scene.db.query(`create schema his authorization ${name}; grant usage on schema his to public`);
  await member.query(
    `create function his.work() returns jsonb language sql as $$ select jsonb_build_object('success', true, 'message', current_user::text) $$`,
  );
  await member.query(
    `insert into pgfresh.scheduled_jobs (name, function_name, schedule) values ('his', 'his.work', '0 3 * * *')`,
  );
  const [row] = await member.query<{ answer: object }>(`select pgfresh.trigger_scheduled_job('his') as answer`);
  expect(row!.answer).toMatchObject({
    success: true,
    schedulers: 1,
    job_name: 'his',
  });
  expect(
    await member.query(
      `select requested_by from pgfresh.scheduled_job_runs as r join pgfresh.scheduled_jobs as j on j.id = r.job_id where j.name = 'his'`,
    ),
  ).toEqual([{ requested_by: name }]);
  expect(await member.query(`select state, waiting from pgfresh.scheduled_job_status where name = 'his'`)).toEqual([
    { state: 'waiting', waiting: '1' },
  ]);
});
