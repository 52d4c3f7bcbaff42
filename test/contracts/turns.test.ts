import { expect, test } from 'vitest';
import { freezeClock } from '../harness/clock.ts';
import { QueueScene } from '../queue/scene.ts';

const keys = (count: number, prefix: string) => Array.from({ length: count }, (_, n) => `${prefix}${n}`);

test('contract 27: with four times as much wanted as may be called, every pair with one viewer is served within the bound', async () => {
  const scene = await QueueScene.open();
  const clock = await freezeClock(scene.db);
  await scene.db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
  const rate = 6_000;
  await scene.source('busy', { rate });
  const type = await scene.type('price', 'busy');
  /** Pairs that are viewed, as the planner knows them. */
  const view = (names: readonly string[], viewers: number, hasRow: boolean) =>
    scene.db.query(
      `insert into pgfresh_engine.pairs (type_id, key, demanded, viewers, row_at)
       select $1::int, key, true, $3::int, case when $4::boolean then pgfresh.clock() end from unnest($2::text[]) as key`,
      [type, names, viewers, hasRow],
    );
  const popular = keys(199, 'popular ');
  const seldom = [...keys(500, 'known '), ...keys(500, 'new ')];
  await view(['viral', ...popular], 8, true);
  await view(seldom.slice(0, 500), 1, true);
  await view(seldom.slice(500), 1, false);

  // 200 pairs that are wanted again every half second are four times the rate. They come first, and are many.
  const want = async () => {
    await scene.queue.enqueue(scene.db, 'price', 'viral', { priority: 10_000 });
    await scene.queue.enqueueMany(scene.db, 'price', popular, { priority: 8 });
  };
  await want();
  await scene.queue.enqueueMany(scene.db, 'price', seldom, { priority: 1 });
  const waiting = new Set(seldom);
  const served: { at: number; key: string }[] = [];
  const bound = (60 * (seldom.length + 200)) / ((0.95 * rate) / 4);
  let seconds = 0;
  for (; waiting.size > 0 && seconds <= bound; seconds += 0.5) {
    const jobs = await scene.claim({ limit: 60 });
    for (const { key } of jobs) {
      served.push({ at: seconds, key });
      waiting.delete(key);
    }
    await scene.complete(jobs, 1);
    await want();
    await clock.advance('500 milliseconds');
  }
  expect([...waiting]).toEqual([]);
  expect(served.length / seconds).toBeGreaterThan((0.9 * rate) / 60);

  // The viral key did not starve either, and while known pairs wait, those without a row had at most half.
  const shareOf = (prefix: string, from: number, to: number) => {
    const calls = served.filter(({ at }) => at >= from && at < to);
    return calls.filter(({ key }) => key.startsWith(prefix)).length / calls.length;
  };
  const lastNew = Math.max(...served.filter(({ key }) => key.startsWith('new ')).map(({ at }) => at));
  expect(lastNew).toBeLessThan(15);
  for (let from = 0; from + 5 <= lastNew; from += 1) {
    expect(shareOf('new ', from, from + 5)).toBeLessThanOrEqual(0.51);
    expect(shareOf('new ', from, from + 5)).toBeGreaterThan(0.4);
    expect(shareOf('popular ', from, from + 5)).toBeGreaterThan(0.2);
  }
  expect(served.filter(({ key }) => key === 'viral').length).toBeGreaterThan(seconds);
});
