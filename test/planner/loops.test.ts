import { expect, test } from 'vitest';
import { PlannerScene } from './scene.ts';

/** How often a pair with a TTL of one minute, whose row stays as it is, is queued in ten minutes, and when. */
const rules = {
  // Confirmed every TTL.
  unchanged: { queued: 11, atSeconds: [0, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600] },
  // It confirms nothing, but asking more often does not help; after five in a row the type is left alone for a while.
  older_source: { queued: 6, atSeconds: [0, 60, 120, 180, 240, 540] },
  // Its own time: three minutes.
  empty: { queued: 4, atSeconds: [0, 180, 360, 540] },
  // The TTL, doubled by each failure.
  failed: { queued: 4, atSeconds: [0, 60, 180, 420] },
  // Somebody did not want it: not before the TTL has passed.
  cancelled: { queued: 11, atSeconds: [0, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600] },
} as const;

test.for(Object.entries(rules))(
  '%s: ten minutes of ticks and sweeps queue the pair as often as the rule says',
  async ([outcome, rule]) => {
    const scene = await PlannerScene.open();
    await scene.type('quote', { columns: { empty_ttl: `'3 minutes'` } });
    if (outcome !== 'empty') await scene.rows('quote', ['A'], '1 day');
    await scene.look('quote', ['A']);
    const atSeconds: number[] = [];
    for (let second = 0; second <= 600; second += 5) {
      await scene.db.query('update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()');
      await scene.tick();
      // More often than the TTL: what a sweep forgets must show.
      if (second % 20 === 0) await scene.sweep();
      if ((await scene.finish(outcome as keyof typeof rules)) > 0) atSeconds.push(second);
      await scene.clock.advance('5 seconds');
    }
    expect({ queued: atSeconds.length, atSeconds }).toEqual(rule);
  },
);

test('fresh: a pair is queued when its row is as old as its TTL, and a deleted row at the next sweep', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['A']);
  const atSeconds: number[] = [];
  for (let second = 0; second <= 300; second += 5) {
    await scene.db.query('update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()');
    await scene.tick();
    // More often than the TTL: what a sweep forgets must show.
    if (second % 20 === 0) await scene.sweep();
    if ((await scene.open()).length > 0) {
      atSeconds.push(second);
      await scene.rows('quote', ['A']);
      await scene.finish('fresh');
    }
    if (second === 150) await scene.db.query('delete from quote');
    await scene.clock.advance('5 seconds');
  }
  expect(atSeconds).toEqual([0, 60, 120, 160, 220, 280]);
});

test('demand that flaps queues nothing more', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  const call = (name: string) => scene.db.query(`select pgfresh.${name}('ada', 'A', 'quote')`);
  for (let turn = 0; turn < 30; turn++) {
    await call('upsert_active_subscription');
    await scene.tick();
    await call('remove_active_subscription');
    await scene.clock.advance('1 second');
    await scene.tick();
    if (turn === 0) {
      await scene.rows('quote', ['A']);
      expect(await scene.finish('fresh')).toBe(1);
    }
  }
  expect(await scene.open()).toEqual([]);
  await scene.clock.advance('15 seconds');
  await scene.tick();
  expect(await scene.queue.value('(select demanded from pgfresh_engine.pairs)')).toBe(false);
});
