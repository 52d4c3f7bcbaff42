import { expect, it } from 'vitest';
import { freezeClock } from '../harness/clock.ts';
import { QueueScene } from '../queue/scene.ts';

it('contract 15: an outage opens the breaker in the second batch, other sources go on, and one probe closes it', async () => {
  const scene = await QueueScene.open({ poolSize: 8 });
  const { db, queue } = scene;
  const clock = await freezeClock(db);
  await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
  await scene.source('dead');
  await scene.type('filing', 'dead');
  const keys = Array.from({ length: 30 }, (_, n) => `k${n}`);
  for (const type of ['quote', 'filing']) await queue.enqueueMany(db, type, keys, { priority: 1 });
  const [dead, type] = await Promise.all([
    scene.value<number>(`select id from pgfresh.sources where name = 'dead'`),
    scene.value<number>(`select type_id from pgfresh.data_type_registry where data_type = 'filing'`),
  ]);

  /** A batch of the dead source: every call of it fails for now. Nothing of it is failed for good when the breaker opens. */
  const batch = async () => {
    const jobs = await scene.claim({ limit: 4, types: [type] });
    const ends = jobs.map(({ id, attempt, request }) => ({ id, attempt, request, bytes: 0, calls: 1 }));
    if (ends.length > 0) await queue.fail(db, ends, { outcome: 'http_5xx', error: '503', counts: true });
    return jobs.length;
  };
  expect([await batch(), await batch(), await batch()]).toEqual([4, 4, 0]);
  expect(await scene.value(`select count(*)::int from pgfresh_engine.history_other`)).toBe(0);
  expect(
    await scene.value(
      `select paused_until - pgfresh.clock() = interval '5 minutes' from pgfresh.sources where id = ${dead}`,
    ),
  ).toBe(true);

  // A dead source beside a living one: the living one goes on as if it were alone.
  const living = await scene.claim({ limit: 100 });
  expect(new Set(living.map((job) => job.key)).size).toBe(30);
  expect(living.every((job) => job.source !== dead)).toBe(true);
  await scene.complete(living);

  await clock.advance('5 minutes');
  // Many ask at once, and one call is made.
  const claims = await Promise.all(Array.from({ length: 8 }, () => scene.claim({ limit: 10 })));
  expect(claims.flat()).toHaveLength(1);
  await scene.complete(claims.flat());
  expect(await scene.claim({ limit: 100 })).toHaveLength(29);
});

it('contract 15: retries open the breaker too, although every other call succeeds, and only that of their source', async () => {
  const scene = await QueueScene.open();
  const { db, queue } = scene;
  const clock = await freezeClock(db);
  await scene.register();
  await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
  await queue.enqueueMany(
    db,
    'quote',
    Array.from({ length: 40 }, (_, n) => `k${n}`),
    { priority: 1 },
  );
  await scene.source('living');
  await scene.type('filing', 'living');
  const isOpen = () =>
    db.query(`select name from pgfresh.sources where paused_until > pgfresh.clock() and paused_by = 'breaker'`);
  for (let retries = 1; retries <= 10; retries++) {
    expect(await isOpen()).toEqual([]);
    const [good, bad] = await scene.claim({ limit: 2 });
    const ends = [{ id: bad!.id, attempt: bad!.attempt, request: bad!.request, bytes: 0, calls: 1 }];
    await queue.fail(db, ends, { outcome: 'http_5xx', error: '503', counts: true });
    if (retries < 10) await scene.complete([good!]);
    await clock.advance('30 seconds');
  }
  expect(await isOpen()).toEqual([{ name: 'market' }]);
});
