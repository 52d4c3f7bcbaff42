import { beforeAll, expect, test } from 'vitest';
import { Events, type PgfreshEvent } from '../../src/events/index.ts';
import { Planner, sweepJob } from '../../src/planner/index.ts';
import { PlannerScene } from './scene.ts';

const keys = Array.from({ length: 10_200 }, (_, index) => `K${index}`);
const seen: PgfreshEvent[] = [];
const events = new Events();
events.subscribe((event) => seen.push(event));
const { signal } = new AbortController();
// A busy machine may take longer than usual for 10,000 jobs.
const limits = { statementMs: 30_000, lockMs: 100 };
let scene: PlannerScene;

beforeAll(async () => {
  scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.rows('quote', keys, '2 minutes');
  await scene.look('quote', keys);
  // At most 5,000 changes of demand are taken in at once.
  for (let part = 0; part < 3; part++) await scene.queue.value('pgfresh_engine.fold_demand(pgfresh.clock())');
});

test('a sweep keeps its time when there is too much, and the next one goes on from there', async () => {
  const hurried = sweepJob({ db: scene.db, events, limits, budgetMs: 0 });
  expect(await hurried({ signal })).toMatchObject({
    message: expect.stringContaining('next run') as string,
    details: { queued: 10_000 },
  });
  expect(await scene.open()).toHaveLength(10_000);
  expect(await hurried({ signal })).toMatchObject({
    message: expect.stringContaining('all pairs') as string,
    details: { queued: 200 },
  });
  expect(await scene.open()).toHaveLength(10_200);
});

test('with time it walks over all chunks, unless its run is to end', async () => {
  const sweep = sweepJob({ db: scene.db, events, limits });
  expect(await sweep({ signal: AbortSignal.abort() })).toMatchObject({ details: { merged: 10_000 } });
  expect(await sweep({ signal })).toMatchObject({ details: { merged: 200 } });
  expect(await sweep({ signal })).toMatchObject({ success: true, details: { merged: 10_200 } });
  expect(seen.at(-1)).toMatchObject({ type: 'planner.ran', kind: 'sweep', counts: { merged: 10_200 } });
});

test('it ends silent subscriptions first, and asks nothing for them', async () => {
  await scene.look('quote', ['GONE', 'HERE']);
  await scene.db.query(
    `update pgfresh_engine.subscription set last_seen_at = last_seen_at - interval '10 minutes' where key = 'GONE'`,
  );
  expect(await sweepJob({ db: scene.db, events, limits })({ signal })).toMatchObject({
    details: { subscriptions_ended: 1, missing: 1, queued: 1 },
  });
  expect(await scene.open()).toContain('quote HERE 1');
  expect(await scene.open()).not.toContain('quote GONE 1');
});

test('what it warns of is told by the next tick, whichever process that is in', async () => {
  await scene.type('gone');
  await scene.look('gone', ['A']);
  await scene.db.query('drop table gone');
  await sweepJob({ db: scene.db, events, limits })({ signal });
  const elsewhere = new Events();
  const told: PgfreshEvent[] = [];
  elsewhere.on('warning', (event) => void told.push(event));
  await new Planner({ db: scene.db, events: elsewhere, tickMs: 60_000 }).tick();
  expect(told).toMatchObject([{ code: 'type_unresolved', subject: 'gone' }]);
});
