import { expect, it } from 'vitest';
import { PlannerScene } from './scene.ts';

it('sound 16: a tick with nothing due reads as little with 20,000 pairs as with one', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['A']);
  await scene.tick();
  const buffers = () =>
    scene.db.transact('test', async (tx) => {
      // The plans that a connection settles on after its first calls.
      for (let warm = 0; warm < 10; warm++) await tx.query('select pgfresh_engine.plan_due_pairs()');
      const reads: number[] = [];
      // The least, because others may have it look into the catalogue again.
      for (let time = 0; time < 3; time++) {
        const [row] = await tx.query<{ 'QUERY PLAN': { Plan: Record<string, number> }[] }>(
          'explain (analyze, buffers, format json) select pgfresh_engine.plan_due_pairs()',
        );
        const plan = row!['QUERY PLAN'][0]!.Plan;
        reads.push(plan['Shared Hit Blocks']! + plan['Shared Read Blocks']!);
      }
      return Math.min(...reads);
    });
  const before = await buffers();
  await scene.db.query(
    `insert into pgfresh_engine.pairs (type_id, key, due_at)
     select type_id, 'K' || n, 'infinity' from pgfresh.data_type_registry, generate_series(1, 20000) as n`,
  );
  await scene.db.query('analyze pgfresh_engine.pairs');
  expect(await buffers()).toBeLessThan(before + 10);
});
