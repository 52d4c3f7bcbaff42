import { expect, test } from 'vitest';
import { processorTime } from '../harness/processor-time.ts';
import { openSession } from '../harness/session.ts';
import { PlannerScene } from './scene.ts';

async function closed(pairs: number): Promise<PlannerScene> {
  const scene = await PlannerScene.open();
  await scene.db.query(
    `create function public.closed(text, text) returns boolean language sql stable as 'select false'`,
  );
  await scene.type('quote', { columns: { gate_function: `'closed'` } });
  const keys = Array.from({ length: pairs }, (_, n) => `K${n}`);
  await scene.rows('quote', keys, '1 hour');
  await scene.look('quote', keys);
  // At most 5,000 changes of demand are taken in at once.
  for (let part = 0; part < 3; part++) await scene.queue.value('pgfresh_engine.fold_demand(pgfresh.clock())');
  expect(await scene.sweep(10_000)).toMatchObject({ gated: pairs, queued: 0 });
  return scene;
}

/** Which version of its row each pair has. */
const versions = (scene: PlannerScene) =>
  scene.queue.value<string>(
    `(select string_agg(key || ' ' || xmin::text, ',' order by key) from pgfresh_engine.pairs)`,
  );

test('sound 16: what a closed gate holds is not written again by the sweeps and ticks that follow', async () => {
  const scene = await closed(50);
  const before = await versions(scene);
  for (let minute = 0; minute < 10; minute++) {
    await scene.clock.advance('1 minute');
    await scene.db.query('update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()');
    expect(await scene.sweep(10_000)).toMatchObject({ gated: 50 });
    await scene.tick();
  }
  expect(await versions(scene)).toBe(before);
});

test('sound 16: what a pause without an end holds is not written again either', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['A', 'B']);
  await scene.db.query(`select pgfresh.pause_source('market')`);
  await scene.tick();
  const before = await versions(scene);
  for (let minute = 0; minute < 10; minute++) {
    await scene.clock.advance('1 minute');
    await scene.db.query('update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()');
    expect(await scene.sweep()).toMatchObject({ skipped_paused: 2 });
    await scene.tick();
  }
  expect(await versions(scene)).toBe(before);
});

test('sound 16: a sweep over a closed gate costs as much per pair, however many there are', async () => {
  const costs: number[] = [];
  for (const pairs of [1_250, 10_000]) {
    const scene = await closed(pairs);
    const session = await openSession(scene.queue.url);
    const since = await processorTime(session);
    for (let swept = 0; swept < 50_000; swept += pairs)
      await session.query('select pgfresh.check_and_queue_stale_data(10000)');
    costs.push((await processorTime(session)) - since);
  }
  // It was more than three times as much when each was compared with each.
  expect(costs[1]! / costs[0]!).toBeLessThan(2.5);
});

test('a gate that was replaced is not asked until the change is accepted', async () => {
  const scene = await closed(3);
  await scene.db.query(
    `create or replace function public.closed(text, text) returns boolean language plpgsql stable
     as $$ begin raise exception sqlstate '55P03'; end $$`,
  );
  const timeouts = () => scene.queue.value<string>('(select count(*)::int from pgfresh_engine.type_timeout)');
  await scene.clock.advance('6 seconds');
  await scene.tick();
  expect(await timeouts()).toBe(0);
  await scene.db.query('update pgfresh.data_type_registry set data_type = data_type');
  await scene.clock.advance('6 seconds');
  await scene.tick();
  expect(await timeouts()).toBe(1);
});
