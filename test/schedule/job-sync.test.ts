import { beforeAll, describe, expect, it } from 'vitest';
import { resolveConfig, type Config } from '../../src/config/index.ts';
import type { Database } from '../../src/database/index.ts';
import { Events, type PgfreshEvent } from '../../src/events/index.ts';
import { examineJobs, isSettled, previewJobs, syncJobs } from '../../src/schedule/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { done, plpgsql } from './job-scene.ts';

let db: Database;
let url: string;
let owner: string;
beforeAll(async () => {
  url = await createDatabase();
  db = openDatabase(url);
  ({ name: owner } = await createLogin(url, 'pgfresh_scheduler'));
  await db.query(plpgsql('public.clean_up(jsonb)', done()));
  await db.query(plpgsql('public.other()', done()));
});

const wanted = (jobs: Config['jobs']) => resolveConfig({ config: { jobs }, file: 'x.ts' });
const sync = (jobs: Config['jobs'], events = new Events()) => syncJobs(db, wanted(jobs), events);
const clean = { name: 'clean', function: 'clean_up', schedule: '0 3 * * *' } as const;
const handled = {
  name: 'handled',
  handler: () => ({ success: true, message: 'done' }),
  every: ['10m', '15m'],
} as const;
const versions = () => db.query('select name, xmin::text from pgfresh.scheduled_jobs order by name');
const row = async (name: string) =>
  (
    await db.query<Record<string, unknown>>(
      'select to_jsonb(j) as row from pgfresh.scheduled_jobs as j where name = $1::text',
      [name],
    )
  )[0]!['row'] as Record<string, unknown>;

describe('a sync of jobs', () => {
  it('writes every option to its column, once', async () => {
    const everything = {
      ...clean,
      name: 'everything',
      description: 'Cleans up',
      timezone: 'America/New_York',
      enabled: false,
      params: { z: 1, a: { c: [1, 2], b: null } },
      timeout: '1.5s',
      retries: 2,
      retryBase: '1m',
      catchUp: 'all',
      catchUpWindow: '2d',
      catchUpMax: 7,
      overlap: 'queue',
      jitter: '90s',
      blackoutDates: ['2026-12-24', '2026-12-25'],
      owner,
    } as const;
    const interval = { ...handled, name: 'interval', afterFailure: ['20m', '40m'] } as const;
    const seen: PgfreshEvent[] = [];
    const events = new Events();
    events.subscribe((event) => seen.push(event));
    expect((await sync([everything, interval], events)).added.map(({ name }) => name)).toEqual([
      'everything',
      'interval',
    ]);
    expect(seen).toEqual([{ type: 'jobs.synced', added: 2, changed: 0, disabled: 0 }]);
    expect(await row('everything')).toMatchObject({
      kind: 'sql',
      function_name: 'clean_up',
      description: 'Cleans up',
      schedule: '0 3 * * *',
      timezone: 'America/New_York',
      enabled: false,
      params: everything.params,
      timeout: '00:00:01.5',
      retries: 2,
      retry_base: '00:01:00',
      catch_up: 'all',
      catch_up_window: '48:00:00',
      catch_up_max: 7,
      overlap: 'queue',
      jitter: '00:01:30',
      blackout_dates: ['2026-12-24', '2026-12-25'],
      owner,
      managed_by: 'config',
    });
    expect(await row('interval')).toMatchObject({
      kind: 'handler',
      function_name: 'interval',
      schedule: null,
      every_min: '00:10:00',
      every_max: '00:15:00',
      failure_min: '00:20:00',
      failure_max: '00:40:00',
    });
    const before = await versions();
    expect(isSettled(await sync([everything, interval]))).toBe(true);
    expect(await versions()).toEqual(before);
  });

  it('changes what differs and tells from what to what, disables what is gone, and enables it when it is back', async () => {
    await sync([clean, handled]);
    const diff = await sync([{ ...clean, schedule: '0 4 * * *', params: { days: 3 } }]);
    expect(diff).toMatchObject({
      added: [],
      changed: [
        {
          name: 'clean',
          changes: [
            { column: 'schedule', from: '0 3 * * *', to: '0 4 * * *' },
            { column: 'params', from: '{}', to: '{"days":3}' },
          ],
        },
      ],
    });
    expect(diff.disabled).toContain('handled');
    expect(await row('handled')).toMatchObject({ enabled: false });
    await sync([clean, handled]);
    expect(await row('handled')).toMatchObject({ enabled: true });
  });

  it('leaves alone what is managed by SQL, what was paused, and everything if the configuration says nothing', async () => {
    await sync([clean]);
    await db.query(
      `insert into pgfresh.scheduled_jobs (name, function_name, schedule) values ('by_hand', 'other', '@daily'); update pgfresh.scheduled_jobs set paused_until = 'infinity', paused_reason = 'busy' where name = 'clean'`,
    );
    const before = await versions();
    expect(isSettled(await sync(undefined))).toBe(true);
    expect(isSettled(await sync([clean]))).toBe(true);
    expect(await versions()).toEqual(before);
    await expect(sync([clean, { ...clean, name: 'by_hand' }])).rejects.toMatchObject({
      code: 'PGF_JOB_MANAGED_BY_SQL',
    });
    await db.query(`update pgfresh.scheduled_jobs set managed_by = 'config' where name = 'by_hand'`);
    expect((await previewJobs(db, wanted([clean]))).disabled).toContain('by_hand');
    await db.query(`delete from pgfresh.scheduled_jobs where name = 'by_hand'`);
  });

  it.each([
    ['a function that is not there', { function: 'missing' }, 'there is no function public.missing()'],
    ['minutes that are not there', { schedule: '61 * * * *' }, "minute '61': expected 0 to 59"],
    ['a day that never comes', { schedule: '0 0 30 2 *' }, 'it has no occurrence within 8 years'],
    ['a role that is not there', { owner: 'nobody "here"' }, 'role "nobody "here"" does not exist'],
  ])('refuses %s, names the job, and keeps nothing', async (_, changes, problem) => {
    const before = await versions();
    await expect(
      sync([
        { ...clean, name: 'first' },
        { ...clean, name: 'second', ...changes },
      ]),
    ).rejects.toMatchObject({
      code: 'PGF_JOB_REFUSED',
      message: expect.stringMatching(/^The job "second" of the configuration/),
      values: { problem: expect.stringContaining(problem) },
    });
    expect(await versions()).toEqual(before);
  });

  it('tells a login that may not write that it may not', async () => {
    const worker = openDatabase((await createLogin(url, 'pgfresh_worker')).url, { poolSize: 1 });
    await expect(syncJobs(worker, wanted([{ ...clean, retries: 9 }]), new Events())).rejects.toMatchObject({
      code: 'PGF_DATABASE_RIGHTS',
    });
  });
});

it('pgfresh check looks at functions, handlers, times and zones, and names each job', async () => {
  await sync([clean, handled]);
  // Their handlers are in no configuration.
  await db.query('select pgfresh_engine.sync_own_jobs()');
  const good = await examineJobs(db, wanted([clean, handled]));
  expect(good.filter(({ state }) => state !== 'ok')).toMatchObject([
    { name: 'jobs', detail: expect.stringMatching(/^\d+ jobs, \d+ of them cannot run$/) },
    { name: 'scheduler', detail: expect.stringMatching(/^no scheduler runs, and \d+ jobs need one$/) },
  ]);
  await db.query(`
    create function public.brief() returns jsonb language sql as 'select null::jsonb';
    insert into pgfresh.scheduled_jobs (name, function_name, schedule) values ('brief', 'brief', '@daily');
    drop function public.brief();
    alter table pgfresh.scheduled_jobs disable trigger b_complete_job;
    insert into pgfresh.scheduled_jobs (name, kind, function_name, schedule, timezone) values ('never', 'handler', 'handled', '0 0 30 2 *', 'UTC'), ('nowhere', 'handler', 'handled', '@daily', 'Mars/Olympus');
    alter table pgfresh.scheduled_jobs enable trigger b_complete_job`);
  const findings = await examineJobs(db, wanted([{ ...clean, retries: 1 }]));
  const found = Object.fromEntries(
    findings.map(({ name, state, code, detail, next }) => [name, [state, code, detail, next]]),
  );
  const noHandler = [
    'this configuration has no handler "handled"',
    'Define the job in pgfresh.config.ts, or disable its row.',
  ];
  expect(findings[0]!.detail).toMatch(/^\d+ jobs, 7 of them cannot run$/);
  expect(found).toMatchObject({
    'job brief': [
      'fatal',
      'PGF_JOB_INVALID',
      expect.stringContaining('there is no function'),
      'Create it, or correct function_name.',
    ],
    'job handled': ['fatal', 'PGF_JOB_INVALID', ...noHandler],
    'job never': ['fatal', 'PGF_JOB_INVALID', ...noHandler],
    jobs: [
      'warning',
      undefined,
      expect.stringContaining('the database differs from the configuration: clean'),
      'Run "pgfresh migrate".',
    ],
  });
  const withHandler = Object.fromEntries(
    (await examineJobs(db, wanted([clean, handled]))).map(({ name, code }) => [name, code]),
  );
  expect(withHandler).toMatchObject({ 'job never': 'PGF_CRON_NEVER', 'job nowhere': 'PGF_ZONE_UNKNOWN' });
});
