import { expect, it } from 'vitest';
import { ScheduleScene } from './scene.ts';

it('opens a round of each scheduled data type by its schedule, and keeps the history', async () => {
  const scene = await ScheduleScene.open();
  await scene.db.query(`
    create table public.item (key text primary key, fetched_at timestamptz);
    insert into pgfresh.sources (name) values ('market');
    insert into pgfresh.data_type_registry (data_type, source, table_name, timestamp_column, ttl, key_table, key_table_column, refresh_strategy, refresh_schedule, schedule_zone)
    values ('item', 'market', 'item', 'fetched_at', '1 hour', 'item', 'key', 'scheduled', '*/5 * * * *', 'America/New_York')`);
  await scene.scheduler({}, { ownJobs: true });
  await scene.idle();
  await scene.advance('7 minutes');
  await scene.idle();
  expect(
    await scene.value(`array(select to_char(slot at time zone 'UTC', 'HH24:MI') from pgfresh.refresh_cycle)`),
  ).toEqual(['12:05']);
  expect(await scene.story('pgfresh.refresh.item')).toEqual(['12:05 catchup succeeded']);
  expect(await scene.story('pgfresh.maintain')).toEqual(['12:07 succeeded']);
  expect(await scene.story('pgfresh.tidy')).toEqual(['12:01-12:06 6 missed', '12:07 succeeded']);
  const sync = () => scene.value<number>('pgfresh.sync_own_jobs()');
  expect(await sync()).toBe(0);
  await scene.db.query(
    `update pgfresh.scheduled_jobs set schedule = '1 1 1 1 *', enabled = false where name = 'pgfresh.refresh.item'`,
  );
  expect(await sync()).toBe(1);
  expect(
    await scene.db.query(`select schedule, enabled from pgfresh.scheduled_jobs where name = 'pgfresh.refresh.item'`),
  ).toEqual([{ schedule: '*/5 * * * *', enabled: false }]);
  await scene.db.query(`delete from pgfresh.data_type_registry`);
  expect(await sync()).toBe(1);
  expect(await scene.value(`array(select name::text from pgfresh.scheduled_jobs)`)).toEqual([
    'pgfresh.maintain',
    'pgfresh.tidy',
  ]);
  expect(scene.problems).toEqual([]);
});

it('tidies up every minute, and one thing that fails keeps nothing else from it', async () => {
  const scene = await ScheduleScene.open();
  const job = await scene.job('old', { enabled: false });
  await scene.db.query(
    `insert into pgfresh.scheduled_job_runs (job_id, state, triggered_by, scheduled_for, started_at, completed_at, success)
     select $1::int, 'succeeded', 'scheduler', t, t, t, true from (select pgfresh.clock() - interval '31 days' as t) as old`,
    [job],
  );
  await scene.value(`pgfresh.warn('old', 'a', 'b', 'c', 1)`);
  await scene.db.query(`update pgfresh.warnings set last_at = last_at - interval '31 days'`);
  await scene.db.query(`alter function pgfresh.clear_planner_runs(interval) rename to away`);
  await scene.scheduler({}, { ownJobs: true });
  await scene.idle();
  const tidied = async () => {
    await scene.advance('1 minute');
    await scene.idle();
    return (await scene.runs('pgfresh.tidy')).at(-1);
  };
  expect(await tidied()).toMatchObject({
    state: 'failed',
    message: expect.stringContaining('clear_planner_runs') as string,
    details: { jobs_changed: 0, runs_forgotten: 1, warnings_forgotten: 1, planner_runs_forgotten: null },
  });
  expect(await scene.value('(select count(*)::int from pgfresh.warnings)')).toBe(0);
  await scene.db.query(`alter function pgfresh.away(interval) rename to clear_planner_runs`);
  expect(await tidied()).toMatchObject({ state: 'succeeded', details: { planner_runs_forgotten: 0 } });
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
    scene.value<object>('pgfresh.prune_scheduled_runs($1::interval, $2::int)', [keep, runs]);
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
