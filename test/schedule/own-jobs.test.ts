import { expect, it } from 'vitest';
import type { EventOf } from '../../src/events/index.ts';
import { sweepJob } from '../../src/planner/index.ts';
import { openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { ScheduleScene } from './scene.ts';

/** Starts a scheduler that also does what pgfresh itself has to do, as a process with that role does. */
async function start(scene: ScheduleScene): Promise<void> {
  const { db, events } = scene;
  await scene.scheduler({}, { ownJobs: { sweep: sweepJob({ db, events }) } });
  await scene.idle();
}

/** A data type of a table of the same name. */
async function register(
  scene: ScheduleScene,
  name: string,
  columns: Readonly<Record<string, string>> = {},
): Promise<void> {
  const all = {
    data_type: name,
    source: 'market',
    table_name: name,
    timestamp_column: 'fetched_at',
    ttl: '1 hour',
    ...columns,
  };
  await scene.db.query(`create table public.${name} (key text primary key, fetched_at timestamptz)`);
  await scene.db.query(`insert into pgfresh.sources (name) values ('market') on conflict do nothing`);
  await scene.db.query(
    `insert into pgfresh.data_type_registry (${Object.keys(all).join(', ')}) values (${Object.values(all)
      .map((value) => `'${value}'`)
      .join(', ')})`,
  );
}

it('opens a round of each scheduled data type by its schedule, and keeps the history', async () => {
  const scene = await ScheduleScene.open();
  await register(scene, 'item', {
    key_table: 'item',
    key_table_column: 'key',
    refresh_strategy: 'scheduled',
    refresh_schedule: '*/5 * * * *',
    schedule_zone: 'America/New_York',
  });
  await start(scene);
  await scene.advance('7 minutes 20 seconds');
  await scene.idle();
  expect(
    await scene.value(`array(select to_char(slot at time zone 'UTC', 'HH24:MI') from pgfresh_engine.refresh_cycle)`),
  ).toEqual(['12:05']);
  expect(await scene.story('pgfresh.refresh.item')).toEqual(['12:05 catchup succeeded']);
  expect(await scene.story('pgfresh.maintain')).toEqual(['12:07 succeeded']);
  expect(await scene.story('pgfresh.tidy')).toEqual(['12:01-12:06 6 missed', '12:07 succeeded']);
  const sync = () => scene.value<number>('pgfresh_engine.sync_own_jobs()');
  expect(await sync()).toBe(0);
  await scene.db.query(
    `update pgfresh.scheduled_jobs set schedule = '1 1 1 1 *', enabled = false where name = 'pgfresh.refresh.item'`,
  );
  await scene.db.query(
    `update pgfresh.scheduled_jobs set description = '', timeout = '1 s', jitter = '0' where name = 'pgfresh.tidy'`,
  );
  await scene.db.query(
    `update pgfresh.scheduled_jobs set schedule = null, every_min = '5 minutes', every_max = '5 minutes', failure_min = '1 hour', failure_max = '1 hour'
     where name = 'pgfresh.maintain'`,
  );
  expect(await sync()).toBe(3);
  expect(
    await scene.db.query(
      `select timeout::text, jitter::text, description <> '' as described from pgfresh.scheduled_jobs where name = 'pgfresh.tidy'`,
    ),
  ).toEqual([{ timeout: '00:01:00', jitter: '00:00:20', described: true }]);
  expect(
    await scene.db.query(`select schedule, enabled from pgfresh.scheduled_jobs where name = 'pgfresh.refresh.item'`),
  ).toEqual([{ schedule: '*/5 * * * *', enabled: false }]);
  await scene.db.query(`delete from pgfresh.data_type_registry`);
  expect(await sync()).toBe(1);
  expect(await scene.value(`array(select name::text from pgfresh.scheduled_jobs order by name)`)).toEqual([
    'pgfresh.maintain',
    'pgfresh.sweep',
    'pgfresh.tidy',
  ]);
  expect(scene.problems).toEqual([]);
});

it('sound 16: forgets pairs and usage that are old, in as many sets as it takes', async () => {
  const scene = await ScheduleScene.open();
  await register(scene, 'quote');
  await scene.db.query(`
    insert into pgfresh_engine.pairs (type_id, key, ok_at) select type_id, n::text, pgfresh.clock() - interval '1 year'
      from pgfresh.data_type_registry, generate_series(1, 2500) as n;
    insert into pgfresh_engine.usage (source_id, hour, shard, bytes, calls)
      select id, date_trunc('hour', pgfresh.clock()) - n * interval '1 day', 0, 1, 1 from pgfresh.sources, generate_series(390, 410) as n`);
  await start(scene);
  await scene.advance('7 minutes 20 seconds');
  await scene.idle();
  expect((await scene.runs('pgfresh.maintain')).at(-1)).toMatchObject({
    state: 'succeeded',
    details: { pairs_forgotten: 2_500, usage_forgotten: 11 },
  });
  expect(await scene.value('(select count(*)::int from pgfresh_engine.pairs)')).toBe(0);
});

it('sweeps every minute: its counts are the details of the run, and an event', async () => {
  const scene = await ScheduleScene.open();
  const ran: EventOf<'planner.ran'>[] = [];
  scene.events.on('planner.ran', (event) => void ran.push(event));
  await register(scene, 'quote');
  await scene.db.query(
    `insert into pgfresh_engine.subscription (user_id, type_id, key, subscribed_at, last_seen_at)
     select 'u', type_id, 'A', pgfresh.clock(), pgfresh.clock() from pgfresh.data_type_registry`,
  );
  await start(scene);
  await scene.advance('1 minute');
  await scene.idle();
  const counts = { checked: 1, missing: 1, queued: 1 };
  expect(await scene.runs('pgfresh.sweep')).toMatchObject([
    { slot: '12:01', state: 'succeeded', message: 'all pairs have had their turn', details: counts },
  ]);
  expect(ran).toMatchObject([{ kind: 'sweep', counts }]);
  expect(await scene.value('(select count(*)::int from pgfresh_engine.job)')).toBe(1);
});

it('a login with pgfresh_planner alone may do all of them', async () => {
  const scene = await ScheduleScene.open();
  await register(scene, 'quote');
  const { url } = await createLogin(scene.url, 'pgfresh_planner');
  const db = openDatabase(url);
  await scene.scheduler({}, { db, url, ownJobs: { sweep: sweepJob({ db, events: scene.events }) } });
  await scene.idle();
  await scene.advance('7 minutes 20 seconds');
  await scene.idle();
  for (const job of ['maintain', 'sweep', 'tidy'])
    expect((await scene.runs(`pgfresh.${job}`)).at(-1)).toMatchObject({ state: 'succeeded', slot: '12:07' });
});

it('tidies up every minute, and one thing that fails keeps nothing else from it', async () => {
  const scene = await ScheduleScene.open();
  const job = await scene.job('old', { enabled: false });
  await scene.db.query(
    `insert into pgfresh.scheduled_job_runs (job_id, state, triggered_by, scheduled_for, started_at, completed_at, success)
     select $1::int, 'succeeded', 'scheduler', t, t, t, true from (select pgfresh.clock() - interval '31 days' as t) as old`,
    [job],
  );
  await scene.value(`pgfresh_engine.warn('old', 'a', 'b', 'c', 1)`);
  await scene.db.query(`update pgfresh.warnings set last_at = last_at - interval '31 days'`);
  await scene.db.query(`alter function pgfresh_engine.clear_planner_runs(interval) rename to away`);
  await start(scene);
  // It is a little later than the minute.
  await scene.advance('20 seconds');
  const tidied = async () => {
    await scene.advance('1 minute');
    await scene.idle();
    return (await scene.runs('pgfresh.tidy')).at(-1);
  };
  expect(await tidied()).toMatchObject({
    state: 'failed',
    message: expect.stringContaining('clear_planner_runs') as string,
    details: {
      jobs_changed: 0,
      runs_forgotten: 1,
      jobs_counted: expect.any(Number) as number,
      warnings_forgotten: 1,
      planner_runs_forgotten: null,
      changes_forgotten: 0,
    },
  });
  expect(await scene.value('(select count(*)::int from pgfresh.warnings)')).toBe(0);
  await scene.db.query(`alter function pgfresh_engine.away(interval) rename to clear_planner_runs`);
  expect(await tidied()).toMatchObject({ state: 'succeeded', details: { planner_runs_forgotten: 0 } });
});

it('counts how jobs went, so that looking at them does not read their runs', async () => {
  const scene = await ScheduleScene.open();
  const job = await scene.job('counted', { enabled: false });
  const run = async (...durations: number[]) => {
    await scene.db.query(
      `insert into pgfresh.scheduled_job_runs (job_id, state, triggered_by, scheduled_for, started_at, completed_at, success, duration_ms, lateness_ms)
       select $1::int, 'succeeded', 'scheduler', pgfresh.clock() - d * interval '1 second', pgfresh.clock(), pgfresh.clock(), d < 100, d, 2 * d from unnest($2::int[]) as d`,
      [job, durations],
    );
    await scene.db.query(`update pgfresh_engine.job_cursor set runs = runs + $1::int`, [durations.length]);
  };
  const shown = async () => {
    const [status] = await scene.db.query<Record<string, unknown>>(
      `select success_rate_percent_7d::float8 as rate, p50_ms as p50, p95_ms as p95, lateness_p95_ms as late from pgfresh.scheduled_job_status`,
    );
    return status;
  };
  const count = () => scene.value<number>('pgfresh_engine.count_job_statistics()');
  const nothing = { rate: null, p50: null, p95: null, late: null };
  expect([await count(), await shown()]).toEqual([0, nothing]);
  await run(10, 20, 30);
  const three = { rate: 100, p50: 20, p95: 29, late: 58 };
  expect(await shown()).toEqual(three);
  expect([await count(), await shown(), await count()]).toEqual([1, three, 0]);
  await scene.db.query('delete from pgfresh.scheduled_job_runs');
  expect(await shown()).toEqual(three);
  // What has run since is seen at once.
  await run(100);
  const one = { rate: 0, p50: 100, p95: 100, late: 200 };
  expect(await shown()).toEqual(one);
  expect([await count(), await shown(), await count()]).toEqual([1, one, 0]);
  await scene.advance('8 days');
  expect([await count(), await shown()]).toEqual([1, nothing]);
  await scene.advance('2 days');
  expect(await count()).toBe(0);
});

it('forgets what is old, and what is more than enough, and nothing that is open', async () => {
  const scene = await ScheduleScene.open();
  const job = await scene.job('busy', { enabled: false, overlap: 'queue' });
  await scene.db.query(
    `insert into pgfresh.scheduled_job_runs (job_id, state, triggered_by, scheduled_for, started_at, completed_at, success)
     select $1::int, 'succeeded', 'scheduler', t, t, t, true from generate_series(pgfresh.clock() - interval '40 days', pgfresh.clock(), interval '1 day') as t`,
    [job],
  );
  await scene.value(`pgfresh.trigger_scheduled_job('busy')`);
  const prune = (keep: string, runs: number) =>
    scene.value<object>('pgfresh_engine.prune_scheduled_runs($1::interval, $2::int)', [keep, runs]);
  const left = () => scene.value<number>('(select count(*)::int from pgfresh.scheduled_job_runs)');
  expect(await prune('30 days', 1000)).toEqual({ jobs: 1, deleted: 10, done: true });
  expect(await left()).toBe(32);
  expect(await prune('30 days', 5)).toMatchObject({ deleted: 27 });
  expect(await scene.value(`array(select distinct state from pgfresh.scheduled_job_runs order by 1)`)).toEqual([
    'succeeded',
    'waiting',
  ]);
  expect(await left()).toBe(5);
});
