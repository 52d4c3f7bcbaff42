import { expect, it } from 'vitest';
import { freezeClock } from '../harness/clock.ts';
import { QueueScene } from './scene.ts';

const scene = await QueueScene.open();
const { db, queue } = scene;
const clock = await freezeClock(db, '2026-05-01T23:59:00Z');
await db.query(`update pgfresh.worker set lease_until = 'infinity'`);

const maintain = () =>
  scene.value<{ made: number; dropped: number; busy: number }>('pgfresh.maintain_queue_partitions(7, 30)');
const partitionOf = (key: string) =>
  scene.value<string>(`select tableoid::regclass::text from pgfresh.history_succeeded where key = $1::text`, [key]);

async function succeed(key: string): Promise<void> {
  await queue.enqueue(db, 'quote', key);
  await scene.complete(await scene.claim());
}

it('is kept by day, made ahead, dropped when it is old, and the last success of a pair stays', async () => {
  expect(await maintain()).toEqual({ made: 8, dropped: 0, busy: 0 });
  await succeed('evening');
  await clock.advance('2 minutes');
  await succeed('morning');
  expect([await partitionOf('evening'), await partitionOf('morning')]).toEqual([
    'pgfresh.history_succeeded_20260501',
    'pgfresh.history_succeeded_20260502',
  ]);
  const okJob = await scene.value(`select ok_job from pgfresh.pairs where key = 'evening'`);
  await clock.advance('8 days');
  expect(await maintain()).toMatchObject({ dropped: 2 });
  expect(await scene.value('select count(*)::int from pgfresh.history_succeeded')).toBe(0);
  expect(await scene.value(`select ok_job from pgfresh.pairs where key = 'evening'`)).toBe(okJob);
});

it('takes an end whose day nobody has made, and forgets it in time too', async () => {
  await clock.advance('60 days');
  await succeed('surprise');
  expect(await partitionOf('surprise')).toBe('pgfresh.history_succeeded_default');
  // The day that is already in the default partition stays there; the others are made.
  expect(await maintain()).toMatchObject({ made: 7, busy: 1 });
  await clock.advance('7 days');
  await maintain();
  expect(await partitionOf('surprise')).toBe('pgfresh.history_succeeded_default');
  await clock.advance('2 days');
  await maintain();
  expect(await scene.value(`select count(*)::int from pgfresh.history_succeeded where key = 'surprise'`)).toBe(0);
});
