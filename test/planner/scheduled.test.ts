import { expect, test } from 'vitest';
import { PlannerScene } from './scene.ts';

async function scheduled(
  keys: string,
  sources: Readonly<Record<string, string>> = { profile: 'market', statements: 'market' },
): Promise<PlannerScene> {
  const scene = await PlannerScene.open();
  await scene.db.query(`create table symbols (symbol text unique, listed boolean); insert into symbols ${keys}`);
  for (const [type, source] of Object.entries(sources)) {
    if (source !== 'market') await scene.queue.source(source);
    await scene.type(type, {
      source,
      columns: {
        refresh_strategy: `'scheduled'`,
        refresh_schedule: `'0 3 * * *'`,
        key_table: `'symbols'`,
        key_table_column: `'symbol'`,
        key_active_column: `'listed'`,
      },
    });
  }
  return scene;
}

const run = (scene: PlannerScene, depth = 1_000) =>
  scene.queue.value<Record<string, number>>('pgfresh.queue_scheduled_refreshes($1::int)', [depth]);
const open = (scene: PlannerScene, type: string, slot = '2026-01-05T03:00:00Z') =>
  scene.queue.value<boolean>('pgfresh_engine.open_refresh_cycle($1::text, $2::timestamptz)', [type, slot]);

test('a slot opens one round, which goes on from key to key and ends', async () => {
  const scene = await scheduled(`values ('A', true), ('B', true), ('C', true), ('OLD', false)`);
  expect(await run(scene)).toMatchObject({ queued: 0, finished: 0 });
  expect([await open(scene, 'profile'), await open(scene, 'profile')]).toEqual([true, false]);
  expect(await run(scene, 2)).toMatchObject({ queued: 2, finished: 0 });
  expect(await run(scene, 2)).toMatchObject({ queued: 0 });
  expect(await scene.open()).toEqual(['profile A -1', 'profile B -1']);
  await scene.finish('unchanged');
  expect(await run(scene, 2)).toMatchObject({ queued: 1, finished: 1 });
  await scene.finish('unchanged');
  expect(await run(scene)).toMatchObject({ queued: 0, finished: 0 });
  expect(await open(scene, 'profile', '2026-01-06T03:00:00Z')).toBe(true);
  expect(await run(scene)).toMatchObject({ queued: 3, finished: 1 });
});

test('a pair that somebody looks at keeps his priority', async () => {
  const scene = await scheduled(`values ('A', true)`);
  await scene.look('profile', ['A'], 3);
  await scene.tick();
  await open(scene, 'profile');
  expect(await run(scene)).toMatchObject({ queued: 0, merged: 1, finished: 1 });
  expect(await scene.open()).toEqual(['profile A 3']);
});

test('keys that make no sense, a table that is gone and a source over its quota keep nobody else from his turn', async () => {
  const scene = await scheduled(`values ('A', true), ('', true), (E'a\\nb', true), (null, true), ('Z', true)`);
  await scene.queue.source('paid', { quotaBytes: 1_000 });
  await scene.db.query(
    `insert into pgfresh.usage_corrections (source, bytes, reason) values ('paid', 950, 'the provider says so')`,
  );
  await scene.type('gone');
  await scene.type('costly');
  await scene.db.query(
    `update pgfresh.data_type_registry set refresh_strategy = 'scheduled', refresh_schedule = '0 3 * * *', key_table = 'symbols', key_table_column = 'symbol',
       source = case data_type when 'costly' then 'paid' else source end where data_type in ('gone', 'costly')`,
  );
  await scene.db.query('drop table gone');
  for (const type of ['gone', 'costly', 'profile', 'statements']) await open(scene, type);
  expect(await run(scene)).toMatchObject({
    queued: 4,
    failed: 4,
    finished: 2,
    skipped_unresolved: 1,
    skipped_quota: 1,
  });
  expect(await scene.open()).toEqual(['profile A -1', 'profile Z -1', 'statements A -1', 'statements Z -1']);
  expect(await scene.warnings()).toEqual([
    { code: 'keys_raised', subject: 'profile', count: 2 },
    { code: 'keys_raised', subject: 'statements', count: 2 },
    { code: 'type_unresolved', subject: 'gone', count: 1 },
  ]);
});

const many = `select to_char(n, 'FM0000'), true from generate_series(1, 1500) as n`;
const waiting = (scene: PlannerScene) =>
  scene.db.query<{ type: string; jobs: number }>(
    `select data_type as type, count(*)::int as jobs from pgfresh_engine.open_jobs group by 1 order by 1`,
  );

test('truth 7: jobs of a source that is away stop no scheduled type of another source', async () => {
  const scene = await scheduled(many, { dead: 'away', alive: 'market' });
  await open(scene, 'dead');
  await run(scene);
  await run(scene);
  expect(await waiting(scene)).toEqual([{ type: 'dead', jobs: 1_000 }]);
  await open(scene, 'alive');
  expect(await run(scene)).toMatchObject({ queued: 1_000 });
  // The same once the breaker knows.
  await scene.db.query(
    `update pgfresh.sources set paused_until = pgfresh.clock() + interval '5 minutes', paused_by = 'breaker' where name = 'away'`,
  );
  await scene.finish('unchanged');
  expect(await run(scene)).toMatchObject({ queued: 500, finished: 1, skipped_breaker: 1 });
});

test('truth 7: types of one source share its depth, and one whose jobs do not move keeps its share only', async () => {
  const scene = await scheduled(many);
  await open(scene, 'profile');
  await open(scene, 'statements');
  for (let tick = 0; tick < 3; tick++) await run(scene);
  expect(await waiting(scene)).toEqual([
    { type: 'profile', jobs: 500 },
    { type: 'statements', jobs: 500 },
  ]);
  const late = await scheduled(many);
  await open(late, 'profile');
  await run(late);
  await open(late, 'statements');
  await run(late);
  expect(await waiting(late)).toEqual([
    { type: 'profile', jobs: 1_000 },
    { type: 'statements', jobs: 500 },
  ]);
});

test('truth 7: more types than a call has keys for all have their turn', async () => {
  const types = Array.from({ length: 120 }, (_, n) => `t${n}`);
  const scene = await scheduled(`values ('A', true)`, Object.fromEntries(types.map((type) => [type, 'market'])));
  for (const type of types) await open(scene, type);
  expect(await run(scene)).toMatchObject({ queued: 100 });
  expect(await run(scene)).toMatchObject({ queued: 20 });
  expect(await waiting(scene)).toHaveLength(120);
});

test('truth 7: slots that come while a round is open are one round, which asks for each key once', async () => {
  const scene = await scheduled(`values ('A', true), ('B', true), ('C', true), ('D', true)`, { profile: 'market' });
  const opened = () =>
    scene.queue.value(`(select count(*)::int from pgfresh_engine.refresh_cycle where done_at is null)`);
  await open(scene, 'profile', '2026-01-05T03:00:00Z');
  await run(scene, 2);
  await scene.db.query(`update pgfresh.sources set enabled = false`);
  for (const day of [6, 7, 8]) {
    expect(await open(scene, 'profile', `2026-01-0${day}T03:00:00Z`)).toBe(true);
    expect(await run(scene)).toMatchObject({ queued: 0, skipped_paused: 1 });
    expect(await opened()).toBe(1);
  }
  expect(await open(scene, 'profile', '2026-01-07T03:00:00Z')).toBe(false);
  await scene.db.query(`update pgfresh.sources set enabled = true`);
  const asked: string[] = [];
  await scene.finish('unchanged');
  while ((await opened()) !== 0) {
    await run(scene, 1);
    asked.push(...(await scene.open()));
    await scene.finish('unchanged');
  }
  expect(asked).toEqual(['profile C -1', 'profile D -1', 'profile A -1', 'profile B -1']);
});

test('sound 11: a key with an extra | is skipped with a warning, and the round of its composite type goes on', async () => {
  const scene = await PlannerScene.open();
  await scene.db.query(`
    create table statements (symbol text, period text, fetched_at timestamptz, primary key (symbol, period));
    create table periods (name text unique);
    insert into periods values ('A|2024'), ('A|2024|Q1'), ('B'), ('B|2024'), ('C|2024')`);
  await scene.type('statements', {
    columns: {
      key_columns: `'{symbol, period}'`,
      refresh_strategy: `'scheduled'`,
      refresh_schedule: `'0 3 * * *'`,
      key_table: `'periods'`,
      key_table_column: `'name'`,
    },
  });
  await open(scene, 'statements');
  expect(await run(scene)).toMatchObject({ queued: 3, failed: 2, finished: 1 });
  expect(await scene.open()).toEqual(['statements A|2024 -1', 'statements B|2024 -1', 'statements C|2024 -1']);
  expect(await scene.warnings()).toEqual([{ code: 'keys_raised', subject: 'statements', count: 2 }]);
});

test('sound 11: a key that the table of its type cannot hold does not stop the round', async () => {
  const scene = await PlannerScene.open();
  await scene.db.query(`
    create table chart (key int primary key, fetched_at timestamptz);
    create table numbers (name text unique);
    insert into numbers values ('1'), ('007'), ('two'), ('3')`);
  await scene.type('chart', {
    columns: {
      refresh_strategy: `'scheduled'`,
      refresh_schedule: `'0 3 * * *'`,
      key_table: `'numbers'`,
      key_table_column: `'name'`,
    },
  });
  await open(scene, 'chart');
  expect(await run(scene)).toMatchObject({ queued: 2, failed: 2, finished: 1 });
  expect(await scene.open()).toEqual(['chart 1 -1', 'chart 3 -1']);
});

test('sound 11: a pair that is locked for a moment has its turn within the round', async () => {
  const scene = await scheduled(`values ('A', true), ('B', true), ('C', true), ('D', true)`, { profile: 'market' });
  await open(scene, 'profile', '2026-01-04T03:00:00Z');
  await run(scene);
  await scene.finish('unchanged');
  await scene.clock.advance('1 day');
  await open(scene, 'profile');
  await scene.db.transact('stranger', async (tx) => {
    await tx.query(`select from pgfresh_engine.pairs where key in ('A', 'D') for update`);
    // The walk goes on past the pair, in small steps as in large ones.
    for (let step = 0; step < 4; step++) await run(scene, 1).then(() => scene.finish('unchanged'));
    expect(await run(scene)).toMatchObject({ queued: 0, busy: 2, finished: 0 });
    expect(await run(scene)).toMatchObject({ queued: 0, busy: 2, finished: 0 });
    expect(
      await scene.db.query(`select key from pgfresh_engine.pairs where ok_at = pgfresh.clock() order by key`),
    ).toEqual([{ key: 'B' }, { key: 'C' }]);
  });
  // Somebody else has refreshed one of them meanwhile, and that is enough for this round.
  await scene.db.query(`update pgfresh_engine.pairs set ok_at = pgfresh.clock() where key = 'D'`);
  expect(await run(scene)).toMatchObject({ queued: 1, busy: 0, finished: 1 });
  expect(await scene.open()).toEqual(['profile A -1']);
  await scene.finish('unchanged');
  expect(await run(scene)).toMatchObject({ queued: 0, finished: 0 });
});

test('sound 11: a slot that comes while pairs of the last round are locked asks for each key once', async () => {
  const scene = await scheduled(`values ('A', true), ('B', true)`, { profile: 'market' });
  await open(scene, 'profile', '2026-01-04T03:00:00Z');
  await run(scene);
  await scene.finish('unchanged');
  await open(scene, 'profile');
  await scene.db.transact('stranger', async (tx) => {
    await tx.query(`select from pgfresh_engine.pairs where key = 'A' for update`);
    expect(await run(scene)).toMatchObject({ queued: 1, busy: 1, finished: 0 });
  });
  await scene.finish('unchanged');
  await scene.clock.advance('1 day');
  await open(scene, 'profile', '2026-01-06T03:00:00Z');
  expect(await run(scene)).toMatchObject({ queued: 2, finished: 1 });
});
