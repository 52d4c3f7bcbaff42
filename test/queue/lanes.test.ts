import { expect, it } from 'vitest';
import { PlannerScene } from '../planner/scene.ts';

it('sound 16: whoever writes a job leaves it in the lane of its band, its size and its missing row', async () => {
  const scene = await PlannerScene.open();
  const { db, queue } = scene;
  await scene.type('quote');
  const lanes = () =>
    db.query<{ key: string; lane: number; band: number }>(
      `select key, lane, band from pgfresh_engine.job where lane = pgfresh_engine.lane_of(band, missing, est_bytes) order by key`,
    );
  const enqueue = (key: string, more: string) =>
    db.query(`select pgfresh_engine.queue_refreshes('quote', array[$1::text], ${more})`, [key]);

  await enqueue('A', '1');
  await enqueue('B', '-1, 2000000');
  await enqueue('C', '8');
  await scene.look('quote', ['D', 'E'], 2);
  await scene.tick();
  // An enqueue with a higher priority, and viewers who come: now a row is missing that someone looks at.
  await enqueue('C', '100');
  await scene.look('quote', ['A', 'B'], 40);
  await scene.tick();
  expect(await lanes()).toEqual([
    { key: 'A', lane: 14, band: 6 },
    { key: 'B', lane: 78, band: 6 },
    { key: 'C', lane: 45, band: 7 },
    { key: 'D', lane: 18, band: 2 },
    { key: 'E', lane: 18, band: 2 },
  ]);
  // Viewers who leave what was asked for by others.
  await db.query('delete from pgfresh_engine.subscription');
  await scene.tick();
  await scene.clock.advance('15 seconds');
  await scene.tick();
  expect(await lanes()).toEqual([
    { key: 'A', lane: 51, band: 1 },
    { key: 'B', lane: 117, band: -1 },
    { key: 'C', lane: 45, band: 7 },
  ]);
  // One that runs again.
  const [first] = await queue.claim({ limit: 1 });
  await enqueue(first!.key, '1, p_force => true');
  await db.query('select pgfresh_engine.complete_jobs(array[$1::bigint], array[$2::int], array[0::bigint])', [
    first!.id,
    first!.attempt,
  ]);
  expect(await lanes()).toHaveLength(3);
});
