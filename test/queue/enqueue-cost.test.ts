import { expect, it } from 'vitest';
import { processorTime } from '../harness/processor-time.ts';
import { QueueScene } from './scene.ts';

const keys = Array.from({ length: 40_000 }, (_, n) => `K${n}`);

/** What it costs to enqueue them all, and what came of them. */
async function enqueue(scene: QueueScene, more = ''): Promise<{ ms: number; results: Record<string, number> }> {
  const since = await processorTime(scene.db);
  const rows = await scene.db.query<{ result: string; count: number }>(
    `select result, count(*)::int as count from pgfresh_engine.queue_refreshes('quote', $1::text[]${more}) group by result`,
    [keys],
  );
  const ms = (await processorTime(scene.db)) - since;
  return { ms, results: Object.fromEntries(rows.map((row) => [row.result, row.count])) };
}

it('sound 16: enqueuing 40,000 pairs that are there costs about as much as new ones', async () => {
  const scene = await QueueScene.open({ poolSize: 1 });
  const all = keys.length;
  const fresh = await enqueue(scene);
  expect(fresh.results).toEqual({ queued: all });
  const merged = await enqueue(scene);
  expect(merged.results).toEqual({ merged: all });
  const raised = await enqueue(scene, ', 5, p_force => true');
  expect(raised.results).toEqual({ merged: all });
  // Half of them run, and of those all will run again; the others are there and have no job.
  await scene.db.query(`update pgfresh_engine.job set state = 'x' where seq % 2 = 0`);
  await scene.db.query(`with gone as (delete from pgfresh_engine.job where state <> 'x' returning key)
    update pgfresh_engine.pairs set job_id = null where key in (select key from gone)`);
  const mixed = await enqueue(scene, ', 5, p_force => true');
  expect(mixed.results).toEqual({ queued: all / 2, rerun: all / 2 });
  // Quadratic, it was thirteen times as much.
  const limit = 5 * fresh.ms + 500;
  for (const { ms } of [merged, raised, mixed]) expect(ms).toBeLessThan(limit);
});
