import { expect, test } from 'vitest';
import { openDatabase } from '../harness/database.ts';
import { PlannerScene } from './scene.ts';

test('the walk-through of the design: ASAN has one stale type of three, which is queued with priority 500', async () => {
  const scene = await PlannerScene.open();
  const rule = { background_priority: '500', ui_threshold: '1000', estimated_data_size_bytes: '50000' };
  await scene.type('profile', { ttl: '1 day' });
  await scene.type('financial-statements', { ttl: '1 day', columns: rule });
  await scene.type('ratios-ttm', { ttl: '1 day' });
  await scene.rows('profile', ['ASAN'], '1 hour');
  await scene.rows('financial-statements', ['ASAN'], '2 days');
  await scene.rows('ratios-ttm', ['ASAN'], '23 hours 59 minutes');
  for (const type of ['profile', 'financial-statements', 'ratios-ttm']) await scene.look(type, ['ASAN']);

  expect(await scene.sweep()).toMatchObject({ checked: 3, stale: 1, missing: 0, queued: 1, merged: 0, failed: 0 });
  expect(await scene.open()).toEqual(['financial-statements ASAN 500']);
  const [job] = await scene.db.query('select estimated_data_size_bytes as bytes, status from pgfresh.api_call_queue');
  expect(job).toEqual({ bytes: 50_000, status: 'pending' });
  // Asking again queues nothing more, and the third one is stale a minute later.
  expect(await scene.sweep()).toMatchObject({ checked: 2, stale: 0, queued: 0, merged: 1 });
  await scene.clock.advance('1 minute');
  expect(await scene.tick()).toMatchObject({ checked: 1, stale: 1, queued: 1 });
  expect(await scene.open()).toEqual(['financial-statements ASAN 500', 'ratios-ttm ASAN 1']);
});

test('a thousand viewers are more than the background priority; below that their number decides between pairs', async () => {
  const scene = await PlannerScene.open();
  await scene.type('statements', { columns: { background_priority: '500', ui_threshold: '1000' } });
  await scene.type('quote');
  await scene.look('statements', ['FEW'], 999);
  await scene.look('statements', ['MANY'], 1_000);
  await scene.look('quote', ['A'], 1);
  await scene.look('quote', ['B'], 7);
  await scene.tick();
  expect(await scene.open()).toEqual(['quote A 1', 'quote B 7', 'statements FEW 500', 'statements MANY 1000']);
});

test('a data type that is added by one INSERT is planned at once', async () => {
  const scene = await PlannerScene.open();
  await scene.db.query(
    'create table earnings_data (symbol text primary key, eps numeric, fetched_at timestamptz not null)',
  );
  await scene.db.query(
    `insert into pgfresh.data_type_registry (data_type, source, table_name, key_columns, timestamp_column, staleness_function, ttl, fetcher, estimated_data_size_bytes)
     values ('earnings', 'market', 'earnings_data', '{symbol}', 'fetched_at', 'is_data_stale', '24 hours', 'fetch-fmp-earnings', 10240)`,
  );
  const answer = await scene.queue.value(`pgfresh.upsert_active_subscription('ada', 'AAPL', 'earnings')`);
  expect(answer).toMatchObject({ result: 'subscribed', planned: { missing: 1, queued: 1 } });
  expect(await scene.open()).toEqual(['earnings AAPL 1']);
});

test('the tick looks only at what is due, when it is due', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote', { ttl: '10 seconds' });
  await scene.rows('quote', ['A'], '4 seconds');
  await scene.rows('quote', ['B'], '0');
  await scene.look('quote', ['A', 'B']);
  expect(await scene.tick()).toMatchObject({ checked: 2, queued: 0 });
  await scene.clock.advance('5.9 seconds');
  expect(await scene.tick()).toEqual({ more: false });
  await scene.clock.advance('0.1 seconds');
  expect(await scene.tick()).toMatchObject({ checked: 1, stale: 1, queued: 1 });
  await scene.clock.advance('4 seconds');
  expect(await scene.tick()).toMatchObject({ checked: 1, stale: 1, queued: 1 });
  expect(await scene.open()).toEqual(['quote A 1', 'quote B 1']);
});

test('a row that others wrote is seen by the sweep, and due when it says', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.rows('quote', ['A', 'B'], '30 seconds');
  await scene.look('quote', ['A', 'B']);
  await scene.tick();
  await scene.db.query(`update quote set fetched_at = null where key = 'A'`);
  await scene.rows('quote', ['B'], '-1 hour');
  expect(await scene.sweep()).toMatchObject({ checked: 2, stale: 1, queued: 1 });
  expect(await scene.open()).toEqual(['quote A 1']);
  await scene.clock.advance('31 seconds');
  expect(await scene.tick()).toEqual({ more: false });
});

test('nothing of a source is planned while it is over its quota, switched off or broken, and all of it afterwards', async () => {
  const scene = await PlannerScene.open();
  await scene.queue.source('paid', { quotaBytes: 1_000 });
  await scene.type('price', { source: 'paid' });
  await scene.type('quote');
  await scene.look('price', ['A', 'B']);
  await scene.look('quote', ['A']);
  await scene.db.query(
    `insert into pgfresh.usage_corrections (source, bytes, reason) values ('paid', 950, 'the provider says so')`,
  );
  expect(await scene.tick()).toMatchObject({ skipped: 2, skipped_quota: 2, queued: 1 });
  expect(await scene.open()).toEqual(['quote A 1']);

  await scene.db.query(
    `insert into pgfresh.usage_corrections (source, bytes, reason) values ('paid', -950, 'it was wrong')`,
  );
  await scene.db.query(`update pgfresh.sources set enabled = false where name = 'paid'`);
  await scene.clock.advance('1 minute');
  expect(await scene.tick()).toMatchObject({ skipped_paused: 2 });
  await scene.db.query(
    `update pgfresh.sources set enabled = true, paused_until = pgfresh.clock() + interval '5 minutes' where name = 'paid'`,
  );
  expect(await scene.sweep()).toMatchObject({ skipped_paused: 2 });
  await scene.db.query(`update pgfresh.sources set paused_by = 'breaker' where name = 'paid'`);
  expect(await scene.sweep()).toMatchObject({ skipped_breaker: 2 });
  await scene.db.query(`insert into pgfresh.spending_stop (reason) values ('test')`);
  expect(await scene.sweep()).toMatchObject({ skipped_stopped: 2, merged: 1 });
  await scene.db.query('delete from pgfresh.spending_stop');
  await scene.sweep();
  await scene.clock.advance('4 minutes 59 seconds');
  expect(await scene.tick()).toEqual({ more: false });
  await scene.clock.advance('1 second');
  expect(await scene.tick()).toMatchObject({ missing: 2, queued: 2 });
});

test('a closed gate holds back what is there, until it opens; what is missing does not wait', async () => {
  const scene = await PlannerScene.open();
  await scene.db.query(`create table exchange (open boolean, opens_at timestamptz)`);
  await scene.db.query(`insert into exchange values (false, pgfresh.clock() + interval '20 minutes')`);
  await scene.db.query(`grant select on exchange to pgfresh_evaluator`);
  await scene.db.query(
    `create function is_exchange_open(p_key text, p_type text) returns boolean language sql as 'select open from exchange'`,
  );
  await scene.db.query(
    `create function exchange_opens(p_key text, p_type text) returns timestamptz language sql as 'select opens_at from exchange'`,
  );
  await scene.type('quote', {
    columns: { gate_function: `'is_exchange_open'`, gate_opens_function: `'exchange_opens'` },
  });
  await scene.rows('quote', ['OLD'], '1 hour');
  await scene.look('quote', ['OLD', 'NEW']);
  expect(await scene.tick()).toMatchObject({ stale: 1, missing: 1, gated: 1, queued: 1 });
  expect(await scene.open()).toEqual(['quote NEW 1']);
  // One at which nobody looks yet gets no time to be looked at.
  await scene.rows('quote', ['LATER'], '1 hour');
  await scene.db.query(`set pgfresh.user_id = 'ada'`);
  const asked = await scene.queue.value(`pgfresh.check_and_queue_stale_batch('LATER', '{quote}')`);
  expect(asked).toMatchObject({ quote: { gated: 1, queued: 0 } });
  expect(await scene.queue.value(`array(select key from pgfresh_engine.due)`)).toEqual(['OLD']);
  await scene.clock.advance('19 minutes 59 seconds');
  await scene.db.query('update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()');
  expect(await scene.tick()).toEqual({ more: false });
  await scene.db.query('update exchange set open = true');
  await scene.clock.advance('1 second');
  expect(await scene.tick()).toMatchObject({ stale: 1, queued: 1 });
});

test('a missing prerequisite is queued with the priority of who needs it, though nobody looks at it; then it is the turn of the other', async () => {
  const scene = await PlannerScene.open();
  await scene.type('company', { ttl: '1 day' });
  await scene.type('profile', { ttl: '1 day', columns: { depends_on: `'{company}'` } });
  await scene.type('quote', { columns: { depends_on: `'{profile}'` } });
  await scene.look('quote', ['AAPL'], 5);
  expect(await scene.tick()).toMatchObject({ missing: 1, waiting: 1, queued: 0 });
  expect(await scene.open()).toEqual(['company AAPL 5']);

  await scene.rows('company', ['AAPL']);
  expect(await scene.finish('fresh')).toBe(1);
  expect(await scene.tick()).toMatchObject({ waiting: 1, prerequisites: 1 });
  expect(await scene.open()).toEqual(['profile AAPL 5']);
  await scene.rows('profile', ['AAPL']);
  await scene.finish('fresh');
  expect(await scene.tick()).toMatchObject({ missing: 1, queued: 1 });
  expect(await scene.open()).toEqual(['quote AAPL 5']);
});

test('a scheduled type is refreshed on demand only when it is missing', async () => {
  const scene = await PlannerScene.open();
  await scene.db.query('create table symbols (symbol text primary key)');
  await scene.db.query(`insert into symbols values ('OLD'), ('NEW')`);
  await scene.type('statements', {
    columns: {
      refresh_strategy: `'scheduled'`,
      refresh_schedule: `'0 3 * * *'`,
      key_table: `'symbols'`,
      key_table_column: `'symbol'`,
    },
  });
  await scene.rows('statements', ['OLD'], '10 days');
  await scene.look('statements', ['OLD', 'NEW']);
  expect(await scene.tick()).toMatchObject({ stale: 1, missing: 1, queued: 1 });
  expect(await scene.open()).toEqual(['statements NEW 1']);
});

test('more viewers raise the priority of a job that waits; a TTL that is changed meanwhile is taken over by the sweep', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.rows('quote', ['FRESH'], '30 seconds');
  await scene.look('quote', ['A', 'FRESH']);
  await scene.tick();
  await scene.look('quote', ['A'], 9);
  await scene.tick();
  expect(await scene.open()).toEqual(['quote A 9']);
  await scene.db.query(`update pgfresh.data_type_registry set ttl = '20 seconds'`);
  expect(await scene.sweep()).toMatchObject({ checked: 1, stale: 1, queued: 1, merged: 1 });
  await scene.finish('unchanged');
  await scene.db.query(`update pgfresh.data_type_registry set ttl = '1 hour'`);
  await scene.sweep();
  await scene.clock.advance('50 minutes');
  await scene.db.query('update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()');
  expect(await scene.tick()).toEqual({ more: false });
});

test('check_and_queue_stale_batch looks at one key in several types, and does not let the caller choose', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.type('profile');
  await scene.rows('profile', ['A']);
  await scene.db.query(`set pgfresh.user_id = 'ada'`);
  const answer = await scene.queue.value(`pgfresh.check_and_queue_stale_batch('A', '{quote,profile,quote}')`);
  expect(answer).toMatchObject({ quote: { missing: 1, queued: 1 }, profile: { checked: 1, queued: 0 } });
  expect(await scene.open()).toEqual(['quote A 1']);
});

test('what another session holds locked is left to the next look, and nobody waits for it', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['A', 'B']);
  const other = openDatabase(scene.queue.url, { poolSize: 1 });
  await scene.tick();
  await scene.finish('unchanged');
  await scene.clock.advance('1 minute');
  await other.transact('hold', async (tx) => {
    await tx.query(`select from pgfresh_engine.pairs where key = 'A' for update`);
    expect(await scene.tick()).toMatchObject({ queued: 1 });
    expect(await scene.open()).toEqual(['quote B 1']);
    expect(await scene.sweep()).toMatchObject({ queued: 0 });
  });
  expect(await scene.tick()).toMatchObject({ queued: 1 });
});

test('runs are recorded with their time and counts, ticks by minute and a sweep as one', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['A', 'B', 'C']);
  await scene.tick(2);
  await scene.tick(2);
  await scene.tick(2);
  await scene.sweep(2);
  const runs = await scene.db.query<Record<string, unknown>>(
    'select kind, calls, counts, ms > 0 as timed from pgfresh_engine.planner_run order by kind',
  );
  expect(runs).toMatchObject([
    { kind: 'sweep', calls: 2, timed: true, counts: { merged: 3, queued: 0 } },
    { kind: 'tick', calls: 2, timed: true, counts: { missing: 3, queued: 3 } },
  ]);
  await scene.clock.advance('8 days');
  expect(await scene.queue.value('pgfresh_engine.clear_planner_runs()')).toBe(2);
});

test('sound 15: a job that was queued while no one looked is for a missing row as soon as someone does', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['KNOWN']);
  await scene.tick();
  await scene.rows('quote', ['KNOWN']);
  await scene.finish('fresh');
  await scene.db.query('delete from pgfresh_engine.subscription');
  await scene.tick();
  for (const priority of [-1, 5])
    await scene.db.query(`select pgfresh_engine.queue_refreshes('quote', array[$1::text], $2::int)`, [
      `NEW ${priority}`,
      priority,
    ]);
  await scene.db.query(`select pgfresh_engine.queue_refreshes('quote', '{KNOWN}', -1)`);
  const jobs = async () =>
    (
      await scene.db.query<{ job: string }>(
        `select concat_ws(' ', key, priority, case when missing then 'missing' end) as job from pgfresh_engine.job
         where lane = pgfresh_engine.lane_of(band, missing, est_bytes) order by 1`,
      )
    ).map(({ job }) => job);
  expect(await jobs()).toEqual(['KNOWN -1', 'NEW -1 -1', 'NEW 5 5']);
  await scene.look('quote', ['KNOWN', 'NEW -1', 'NEW 5']);
  await scene.tick();
  expect(await jobs()).toEqual(['KNOWN 1', 'NEW -1 1 missing', 'NEW 5 5 missing']);
  // And is not any more when they have gone.
  await scene.db.query('delete from pgfresh_engine.subscription');
  await scene.tick();
  await scene.clock.advance('16 seconds');
  await scene.tick();
  expect(await jobs()).toEqual(['KNOWN -1', 'NEW -1 -1', 'NEW 5 5']);
});
