import { expect, test } from 'vitest';
import { openSession } from '../harness/session.ts';
import { seededRandom } from '../harness/random.ts';
import { PlannerScene } from './scene.ts';

/** Demanded pairs whose time has no entry, which the tick would never look at. */
function forgotten(scene: PlannerScene): Promise<object[]> {
  return scene.db.query(
    `select p.key, p.due_at::text, p.job_id from pgfresh_engine.pairs as p where p.demanded and p.due_at < 'infinity'
     and not exists (select from pgfresh_engine.due as d where d.due_at = p.due_at and d.type_id = p.type_id and d.key = p.key)`,
  );
}

const entries = (scene: PlannerScene) => scene.queue.value<number>('(select count(*)::int from pgfresh_engine.due)');

test('whatever happens, every time of a pair has its entry, and all others go in the end', async () => {
  const scene = await PlannerScene.open();
  const random = seededRandom(7);
  const pick = <Item>(items: readonly Item[]): Item => items[Math.floor(random() * items.length)]!;
  const keys = ['A', 'B', 'C', 'D', 'E', 'F'];
  await scene.type('profile', { ttl: '1 hour', columns: { max_retries: '0' } });
  await scene.type('quote', { ttl: '10 seconds', columns: { depends_on: `'{profile}'`, empty_ttl: `'3 seconds'` } });
  const events = {
    comes: () => scene.look(pick(['quote', 'profile']), [pick(keys)], 1 + Math.floor(random() * 3)),
    subscribes: () => scene.queue.value(`pgfresh.upsert_active_subscription('ada', $1::text, 'quote')`, [pick(keys)]),
    leaves: () => scene.db.query('delete from pgfresh_engine.subscription where key = $1::text', [pick(keys)]),
    forces: () =>
      scene.queue.value(`pgfresh.queue_refresh_if_not_exists($1::text, 'quote', p_force => true)`, [pick(keys)]),
    writes: () => scene.rows(pick(['quote', 'profile']), [pick(keys)]),
    ends: () => scene.finish(pick(['fresh', 'unchanged', 'empty', 'older_source', 'failed', 'cancelled'])),
    waits: () => scene.clock.advance(`${Math.floor(random() * 20_000)} milliseconds`),
    ticks: () => scene.tick(),
    sweeps: () => scene.sweep(4),
  };
  for (let step = 0; step < 600; step++) {
    const event = pick(Object.keys(events) as (keyof typeof events)[]);
    await events[event]();
    expect(await forgotten(scene), `after step ${step}, ${event}`).toEqual([]);
  }
  await scene.db.query('delete from pgfresh_engine.subscription');
  await scene.tick();
  await scene.clock.advance('3 days');
  expect(await scene.tick()).toMatchObject({ more: false });
  expect(await entries(scene)).toBe(0);
});

test('pairs that somebody has locked for longer do not keep others from their turn', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['A', 'B']);
  await scene.tick();
  await scene.finish('fresh');
  await scene.clock.advance('1 second');
  await scene.look('quote', ['C', 'D', 'E']);
  await scene.tick();
  await scene.finish('fresh');
  await scene.clock.advance('2 minutes');

  const other = await openSession(scene.queue.url);
  await other.query('begin');
  await other.query(`select from pgfresh_engine.pairs where key in ('A', 'B') for update`);
  expect(await scene.tick(2)).toMatchObject({ queued: 2, more: true });
  expect(await scene.tick(2)).toMatchObject({ queued: 1, more: false });
  expect(await scene.tick(2)).toEqual({ more: false });
  expect(await scene.open()).toEqual(['quote C 1', 'quote D 1', 'quote E 1']);
  await other.query('rollback');
  expect(await scene.tick(2)).toMatchObject({ queued: 2 });
});

test('a pair that has changed between look and decision of the sweep is left as it is', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['A']);
  await scene.tick();
  await scene.finish('fresh');
  await scene.rows('quote', ['A'], '2 hours');
  await scene.clock.advance('2 minutes');
  // What a sweep has read before the pair got a job, and what it does with that afterwards.
  const looks = await scene.queue.value<string>(
    `(pgfresh_engine.looks_at((select type_id from pgfresh.data_type_registry), '{A}'))::text`,
  );
  await scene.queue.value(`pgfresh.queue_refresh_if_not_exists('A', 'quote')`);
  const planned = await scene.queue.value(`pgfresh_engine.plan_looks($1::pgfresh_engine.looks[], pgfresh.clock())`, [
    looks,
  ]);
  expect(planned).toMatchObject({ checked: 1, stale: 1, queued: 0 });
  expect(await scene.open()).toEqual(['quote A 0']);
});

test('a type that is removed takes its entries with it', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.type('profile');
  await scene.look('quote', ['A']);
  await scene.look('profile', ['A']);
  await scene.rows('quote', ['A']);
  await scene.rows('profile', ['A']);
  await scene.tick();
  expect(await entries(scene)).toBe(2);
  await scene.db.query(`delete from pgfresh.data_type_registry where data_type = 'quote'`);
  expect(await entries(scene)).toBe(1);
});
