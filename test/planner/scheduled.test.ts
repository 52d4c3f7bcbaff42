import { expect, test } from 'vitest';
import { PlannerScene } from './scene.ts';

async function scheduled(keys: string): Promise<PlannerScene> {
  const scene = await PlannerScene.open();
  await scene.db.query(`create table symbols (symbol text unique, listed boolean); insert into symbols values ${keys}`);
  for (const type of ['profile', 'statements']) {
    await scene.type(type, {
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
  scene.queue.value<boolean>('pgfresh.open_refresh_cycle($1::text, $2::timestamptz)', [type, slot]);

test('a slot opens one round, which goes on from key to key and ends', async () => {
  const scene = await scheduled(`('A', true), ('B', true), ('C', true), ('OLD', false)`);
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
  const scene = await scheduled(`('A', true)`);
  await scene.look('profile', ['A'], 3);
  await scene.tick();
  await open(scene, 'profile');
  expect(await run(scene)).toMatchObject({ queued: 0, merged: 1, finished: 1 });
  expect(await scene.open()).toEqual(['profile A 3']);
});

test('keys that make no sense, a table that is gone and a source over its quota keep nobody else from his turn', async () => {
  const scene = await scheduled(`('A', true), ('', true), (E'a\\nb', true), (null, true), ('Z', true)`);
  await scene.queue.source('paid', { quotaBytes: 1_000 });
  await scene.db.query(`select pgfresh.correct_data_usage('paid', 950, 'the provider says so')`);
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
