import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { PlannerScene } from '../planner/scene.ts';

let scene: PlannerScene;
beforeAll(async () => {
  scene = await PlannerScene.open();
});

const noon = '2026-01-05T12:00:00Z';

beforeEach(async () => {
  await scene.db.query(`
    delete from pgfresh.data_type_registry; truncate pgfresh_engine.history_other;
    drop table if exists public.quote, public.profile, public.symbols cascade`);
  await scene.clock.set(noon);
  await scene.type('quote');
});

const leave = (type = 'quote') =>
  scene.db.query(
    `delete from pgfresh_engine.subscription where type_id = (select type_id from pgfresh.data_type_registry where data_type = $1::text)`,
    [type],
  );
/** All have left, and 15 s have passed. */
const cool = async (type = 'quote') => {
  await leave(type);
  await scene.tick();
  await scene.clock.advance('15 seconds');
  await scene.tick();
};
const enqueue = (keys: readonly string[], more = '') =>
  scene.db.query(`select pgfresh_engine.queue_refreshes('quote', $1::text[]${more})`, [keys]);
const cancelled = () =>
  scene.queue.value<string[]>(
    `array(select key || ' ' || error from pgfresh_engine.history_other where type_id in (select type_id from pgfresh.data_type_registry) order by key)`,
  );
const runsAt = async (key: string) => {
  const [row] = await scene.db.query<{ state: string; wait: number }>(
    `select state, extract(epoch from run_at - (select pgfresh.clock()))::float8 as wait from pgfresh_engine.job where key = $1::text`,
    [key],
  );
  return row;
};

describe('sound 5: when a pair cools down, its job', () => {
  const keys = Array.from({ length: 200 }, (_, n) => `K${n}`);

  it('is cancelled: 200 pairs that were left are not fetched before the one that is viewed', async () => {
    await scene.look('quote', keys, 3);
    await scene.tick();
    expect(await scene.open()).toHaveLength(200);
    await cool();
    await scene.look('quote', ['A']);
    await scene.tick();
    expect(await scene.open()).toEqual(['quote A 1']);
    expect((await scene.queue.claim()).map(({ key }) => key)).toEqual(['A']);
    expect(await cancelled()).toHaveLength(200);
  });

  it('is cancelled without a word against the pair: whoever comes back is served at once', async () => {
    await scene.look('quote', ['A']);
    await scene.tick();
    await cool();
    expect([await scene.open(), await cancelled()]).toEqual([[], ['A no viewer is left']]);
    await scene.look('quote', ['A']);
    await scene.tick();
    expect(await scene.open()).toEqual(['quote A 1']);
  });

  it('stays for those who came back within the 15 s', async () => {
    await scene.look('quote', ['A']);
    await scene.tick();
    await leave();
    await scene.tick();
    await scene.clock.advance('10 seconds');
    await scene.look('quote', ['A'], 2);
    await scene.tick();
    await scene.clock.advance('10 seconds');
    await scene.tick();
    expect(await scene.open()).toEqual(['quote A 2']);
  });

  it.each([
    ['an application has asked for it', '', 0],
    ['it was asked for with a priority', ', 7', 7],
    ['it was forced', ', 2, p_force => true', 2],
    ['it has metadata', `, 2, p_metadata => '{"full": true}'`, 2],
    ['a schedule has asked for it', ', -1', -1],
  ])('stays if %s, before or after, with that priority', async (_, more, priority) => {
    await enqueue(['A'], more);
    await scene.look('quote', ['A', 'B'], 50);
    await scene.tick();
    await enqueue(['B'], more);
    expect(await scene.open()).toEqual(['quote A 50', 'quote B 50']);
    await cool();
    expect(await scene.open()).toEqual([`quote A ${priority}`, `quote B ${priority}`]);
    expect(await cancelled()).toEqual([]);
  });

  it('goes with the pair that needed it, and stays while another one needs it', async () => {
    await scene.type('profile');
    await scene.db.query(`update pgfresh.data_type_registry set depends_on = '{profile}' where data_type = 'quote'`);
    await scene.look('quote', ['A', 'B']);
    await scene.look('profile', ['B']);
    await scene.tick();
    expect(await scene.open()).toEqual(['profile A 1', 'profile B 1']);
    // B's own viewers leave; the quote still needs it.
    await cool('profile');
    expect(await scene.open()).toEqual(['profile A 1', 'profile B 1']);
    await cool();
    expect(await scene.open()).toEqual([]);
  });

  it('that runs is not stopped, but not tried again either', async () => {
    await scene.look('quote', ['A']);
    await scene.tick();
    const [job] = await scene.queue.claim();
    await cool();
    await scene.db.query(`select pgfresh.fail_queue_job($1::bigint, 'no')`, [job!.id]);
    await scene.db.query(`update pgfresh_engine.job set run_at = pgfresh.clock() + interval '1 minute'`);
    expect(await scene.open()).toEqual(['quote A 1']);
    await scene.clock.advance('15 seconds');
    await scene.tick();
    expect([await scene.open(), await cancelled()]).toEqual([[], ['A no viewer is left; before: no']]);
    // Its wait goes on, so coming and going is no way round it.
    await scene.look('quote', ['A']);
    await scene.tick();
    expect(await scene.open()).toEqual([]);
    await scene.clock.advance('45 seconds');
    await scene.tick();
    expect(await scene.open()).toEqual(['quote A 1']);
  });

  it('that is locked is cancelled by a later tick, and nobody waits', async () => {
    await scene.look('quote', ['A', 'B']);
    await scene.tick();
    await scene.db.transact('lock', async (tx) => {
      await tx.query(`select from pgfresh_engine.job where key = 'A' for update`);
      await cool();
      expect(await scene.open()).toEqual(['quote A 1']);
    });
    await scene.clock.advance('15 seconds');
    await scene.tick();
    expect(await scene.open()).toEqual([]);
  });

  it('is cancelled in batches', async () => {
    const many = Array.from({ length: 2_500 }, (_, n) => `K${n}`);
    await scene.look('quote', many);
    await scene.tick(10_000);
    expect(await scene.open()).toHaveLength(2_500);
    await cool();
    expect(await scene.open()).toHaveLength(500);
    await scene.tick();
    expect(await scene.open()).toEqual([]);
  });
});

describe('sound 10: demand brings a waiting job forward', () => {
  it('that was queued for in 30 days', async () => {
    await enqueue(['A', 'B'], `, p_run_at => pgfresh.clock() + interval '30 days'`);
    await scene.look('quote', ['A']);
    await scene.tick();
    expect((await scene.queue.claim()).map(({ key }) => key)).toEqual(['A']);
    expect(await runsAt('B')).toMatchObject({ state: 'w', wait: 30 * 86_400 });
  });

  it('no further than to the time at which its row is stale', async () => {
    await scene.rows('quote', ['A'], '20 seconds');
    await scene.look('quote', ['A']);
    await scene.tick();
    await cool();
    await enqueue(['A'], `, p_run_at => pgfresh.clock() + interval '30 days'`);
    await scene.look('quote', ['A']);
    await scene.tick();
    expect(await runsAt('A')).toEqual({ state: 'w', wait: 25 });
  });

  it('that is queued for later while somebody looks: it comes when the pair is due', async () => {
    await scene.rows('quote', ['A'], '20 seconds');
    await scene.look('quote', ['A']);
    await scene.tick();
    await enqueue(['A', 'B'], `, p_run_at => pgfresh.clock() + interval '30 days'`);
    expect(await runsAt('A')).toEqual({ state: 'w', wait: 40 });
    expect(await runsAt('B')).toEqual({ state: 'w', wait: 30 * 86_400 });
  });

  it('that has failed in the background, as if it had been viewed', async () => {
    await enqueue(['A', 'B'], ', -1');
    await scene.queue.claim();
    await scene.db.query(`select pgfresh.fail_queue_job(id, 'no') from pgfresh_engine.job`);
    await scene.db.query(`update pgfresh_engine.job set retries = 3, run_at = run_at + interval '7.5 hours'`);
    await scene.look('quote', ['A']);
    await scene.tick();
    const job = await runsAt('A');
    expect(job).toMatchObject({ state: 'w' });
    // 15 s, doubled twice.
    expect(job!.wait).toBeGreaterThanOrEqual(30);
    expect(job!.wait).toBeLessThanOrEqual(60);
    expect((await runsAt('B'))!.wait).toBeGreaterThan(7 * 3_600);
    // Those who come after them do not make it shorter.
    await scene.clock.advance('5 seconds');
    await scene.look('quote', ['A'], 5);
    await scene.tick();
    expect((await runsAt('A'))!.wait).toBeCloseTo(job!.wait - 5, 3);
    expect(await scene.open()).toContain('quote A 5');
  });

  it('without waiting for whoever has locked it', async () => {
    await enqueue(['A', 'B'], `, p_run_at => pgfresh.clock() + interval '30 days'`);
    await scene.db.transact('lock', async (tx) => {
      await tx.query(`select from pgfresh_engine.job where key = 'A' for update`);
      await scene.look('quote', ['A', 'B']);
      await scene.tick();
      expect(await runsAt('B')).toMatchObject({ state: 'r' });
    });
    // The next sweep comes back to it.
    await scene.queue.value('pgfresh.cleanup_stale_subscriptions()');
    expect(await runsAt('A')).toMatchObject({ state: 'r' });
  });
});
