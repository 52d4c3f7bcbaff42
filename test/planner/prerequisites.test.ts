import { expect, test } from 'vitest';
import { PlannerScene } from './scene.ts';

/** A quote needs a profile, which somebody looks at and a worker is just fetching. */
async function fetching(): Promise<PlannerScene> {
  const scene = await PlannerScene.open();
  await scene.type('profile');
  await scene.type('quote', { columns: { depends_on: `'{profile}'` } });
  await scene.look('profile', ['A']);
  await scene.tick();
  return scene;
}

const subscribe = `select pgfresh.upsert_active_subscription('ann', 'A', 'quote')`;

test('a pair that begins to wait while its prerequisite is being written is queued a moment later', async () => {
  const scene = await fetching();
  const [job] = await scene.queue.claim();
  await scene.db.transact('viewer', async (tx) => {
    await tx.query(subscribe);
    // The end neither waits for the pair nor sees that it waits.
    await scene.rows('profile', ['A']);
    await scene.db.query('select pgfresh.complete_queue_job($1::bigint, 1)', [job!.id]);
  });
  await scene.clock.advance('2 seconds');
  await scene.tick();
  expect(await scene.open()).toEqual(['quote A 1']);
});

test('a pair whose prerequisite takes long is asked about more and more rarely, and woken by its end', async () => {
  const scene = await fetching();
  await scene.db.query(subscribe);
  const [job] = await scene.queue.claim();
  const checks: number[] = [];
  for (let second = 1; second <= 50; second++) {
    await scene.clock.advance('1 second');
    const { checked } = await scene.tick();
    if (Number(checked) > 0) checks.push(second);
  }
  expect(checks.length).toBeLessThanOrEqual(6);
  await scene.rows('profile', ['A']);
  await scene.db.query('select pgfresh.complete_queue_job($1::bigint, 1)', [job!.id]);
  await scene.tick();
  expect(await scene.open()).toEqual(['quote A 1']);
});

test('a pair whose prerequisite has failed for good waits for the next sweep, not for each tick', async () => {
  const scene = await fetching();
  await scene.db.query(subscribe);
  await scene.finish('failed');
  const checks: number[] = [];
  for (let second = 1; second <= 50; second++) {
    await scene.clock.advance('1 second');
    const { checked } = await scene.tick();
    if (Number(checked) > 0) checks.push(second);
  }
  expect(checks.length).toBeLessThanOrEqual(3);
});

test('sound 9: a prerequisite that is gone when its dependant is written is fetched before the next try', async () => {
  const scene = await PlannerScene.open();
  await scene.type('profile');
  await scene.type('quote', { columns: { depends_on: `'{profile}'` } });
  await scene.rows('profile', ['A']);
  await scene.look('quote', ['A']);
  await scene.tick();
  const [job] = await scene.queue.claim();
  await scene.db.query(`delete from profile`);
  await scene.db.query(
    `select pgfresh_engine.fail_jobs(jsonb_build_array(jsonb_build_object('id', $1::bigint, 'attempt', $2::int, 'outcome', 'dependency')))`,
    [job!.id, job!.attempt],
  );
  expect((await scene.open()).toSorted()).toEqual(['profile A 1', 'quote A 1']);
  // It does not sit out the wait for its next try when what it needs is there.
  await scene.rows('profile', ['A']);
  const [needed] = await scene.queue.claim();
  await scene.queue.complete([needed!]);
  expect((await scene.queue.claim()).map(({ id }) => id)).toEqual([job!.id]);
  // What has failed for another reason does.
  await scene.db.query(`select pgfresh.fail_queue_job($1::bigint, 'the provider answered 503')`, [job!.id]);
  await scene.db.query(`select pgfresh.queue_refresh_if_not_exists('A', 'profile')`);
  await scene.queue.complete(await scene.queue.claim());
  expect(await scene.queue.claim()).toEqual([]);
});

test('sound 9: a pair that failed for good without its prerequisite is asked for again when that is there, once', async () => {
  const scene = await PlannerScene.open();
  await scene.type('profile');
  await scene.type('quote', { columns: { depends_on: `'{profile}'` } });
  await scene.rows('profile', ['A']);
  await scene.look('quote', ['A']);
  await scene.tick();
  const failWithout = async (): Promise<void> => {
    const [job] = await scene.queue.claim();
    await scene.db.query(
      `select pgfresh_engine.fail_jobs(jsonb_build_array(jsonb_build_object(
         'id', $1::bigint, 'attempt', $2::int, 'outcome', 'dependency', 'permanent', true)))`,
      [job!.id, job!.attempt],
    );
  };
  await scene.db.query('delete from profile');
  await failWithout();
  expect(await scene.open()).toEqual(['profile A 1']);
  const fetched = async (): Promise<void> => {
    await scene.rows('profile', ['A']);
    await scene.queue.complete(await scene.queue.claim());
    await scene.tick();
  };
  await fetched();
  expect(await scene.open()).toEqual(['quote A 1']);
  // It fails again although its prerequisite is there: something else is wrong with it.
  await failWithout();
  await scene.queue.value(`pgfresh_engine.queue_refreshes('profile', '{A}')`);
  await fetched();
  expect(await scene.open()).toEqual([]);
  // It fails once more because its prerequisite is gone again, which is no fault of its own.
  await scene.clock.advance('2 hours');
  await scene.tick();
  await scene.db.query('delete from profile');
  await failWithout();
  await fetched();
  expect(await scene.open()).toEqual(['quote A 1']);
});

test('a chain of three, all viewed and due in one tick, gets one job for its first link, and the others wait a second', async () => {
  const scene = await PlannerScene.open();
  await scene.type('company');
  await scene.type('profile', { columns: { depends_on: `'{company}'` } });
  await scene.type('quote', { columns: { depends_on: `'{profile,company}'` } });
  for (const type of ['company', 'profile', 'quote']) await scene.look(type, ['A', 'B']);
  await scene.rows('company', ['B']);
  expect(await scene.tick()).toMatchObject({ checked: 6, missing: 5, queued: 2, waiting: 3 });
  expect(await scene.open()).toEqual(['company A 1', 'profile B 1']);
  const waiting = await scene.db.query<{ pair: string; seconds: number }>(
    `select r.data_type || ' ' || p.key as pair, extract(epoch from p.due_at - pgfresh.clock())::int as seconds
     from pgfresh_engine.pairs as p join pgfresh.data_type_registry as r using (type_id)
     where p.waits_for = 'dependency' order by 1`,
  );
  expect(waiting).toEqual([
    { pair: 'profile A', seconds: 1 },
    { pair: 'quote A', seconds: 1 },
    { pair: 'quote B', seconds: 1 },
  ]);
  // Each has one entry that means it: the next tick looks at each once.
  await scene.clock.advance('1 second');
  expect(await scene.tick()).toMatchObject({ checked: 3, queued: 0, waiting: 3 });
});
