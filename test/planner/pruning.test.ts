import { expect, test } from 'vitest';
import { PlannerScene } from './scene.ts';

interface Pruned {
  readonly looked_at: number;
  readonly deleted: number;
  readonly done: boolean;
}

const prune = (scene: PlannerScene) => scene.queue.value<Pruned>('pgfresh_engine.prune_pairs()');
const pairs = async (scene: PlannerScene): Promise<string[]> => {
  const rows = await scene.db.query<{ pair: string }>(
    `select r.data_type || ' ' || p.key as pair from pgfresh_engine.pairs as p join pgfresh.data_type_registry as r using (type_id) order by 1`,
  );
  return rows.map(({ pair }) => pair);
};

test('sound 16: a pair that nobody has asked for in 90 days is forgotten, one that anything needs is not', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.type('yearly', { ttl: '365 days' });
  await scene.type('kept', { columns: { evict_after: `'200 days'` } });
  await scene.look('quote', ['VIEWED', 'LEFT', 'FAILED']);
  await scene.look('yearly', ['LEFT']);
  await scene.look('kept', ['LEFT']);
  await scene.tick();
  await scene.rows('quote', ['VIEWED', 'LEFT']);
  await scene.rows('yearly', ['LEFT']);
  await scene.rows('kept', ['LEFT']);
  for (const { id, key } of await scene.queue.claim()) {
    if (key === 'FAILED') await scene.db.query(`select pgfresh.fail_queue_job($1::bigint, 'no', null, true)`, [id]);
    else await scene.db.query(`select pgfresh.complete_queue_job($1::bigint, 1)`, [id]);
  }
  await scene.db.query(`delete from pgfresh_engine.subscription where key <> 'VIEWED'`);
  // Queued for good, and one that remembers nothing.
  await scene.db.query(
    `select count(*) from pgfresh_engine.queue_refreshes('quote', '{QUEUED}', p_run_at => pgfresh.clock() + interval '300 days')`,
  );
  await scene.db.query(`update pgfresh_engine.pairs set ok_at = pgfresh.clock() where key = 'QUEUED'`);
  await scene.db.query(
    `insert into pgfresh_engine.pairs (type_id, key) select type_id, 'BARE' from pgfresh.data_type_registry where data_type = 'quote'`,
  );
  await scene.tick();
  await scene.clock.advance('20 seconds');
  await scene.tick();
  expect(await prune(scene)).toEqual({ looked_at: 7, deleted: 0, done: true });
  await scene.clock.advance('91 days');
  const all = ['kept LEFT', 'quote BARE', 'quote FAILED', 'quote LEFT', 'quote QUEUED', 'quote VIEWED', 'yearly LEFT'];
  expect(await pairs(scene)).toEqual(all);
  expect((await prune(scene)).deleted).toBe(3);
  expect(await pairs(scene)).toEqual(['kept LEFT', 'quote QUEUED', 'quote VIEWED', 'yearly LEFT']);
  // A year later the row of the one is not fresh any more, that of the other was evicted.
  await scene.clock.advance('400 days');
  await scene.db.query(
    `select pgfresh_engine.note_evicted(type_id, '{LEFT}') from pgfresh.data_type_registry where data_type = 'kept'`,
  );
  expect((await prune(scene)).deleted).toBe(2);
  expect(await pairs(scene)).toEqual(['quote QUEUED', 'quote VIEWED']);
});

test('sound 16: a pair stays whose viewers are written down and not counted yet', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.db.query(`
    insert into pgfresh_engine.pairs (type_id, key, ok_at) select type_id, key, pgfresh.clock() - interval '1 year'
      from pgfresh.data_type_registry, unnest('{SUBSCRIBED,AT_A_NODE,CHANGED,WAITING,LEFT}'::text[]) as key;
    insert into pgfresh_engine.subscription (user_id, type_id, key, subscribed_at, last_seen_at)
      select 'ann', type_id, 'SUBSCRIBED', pgfresh.clock(), pgfresh.clock() from pgfresh.data_type_registry;
    select pgfresh_engine.set_node_demand(pgfresh_engine.register_process('gateway', 'node'), array[type_id], '{AT_A_NODE}', '{1}')
      from pgfresh.data_type_registry;
    delete from pgfresh_engine.demand_change;
    insert into pgfresh_engine.demand_change (type_id, key, delta) select type_id, 'CHANGED', 1 from pgfresh.data_type_registry;
    insert into pgfresh_engine.demand_waiting (type_id, key, delta, tries, next_at)
      select type_id, 'WAITING', 1, 1, pgfresh.clock() from pgfresh.data_type_registry`);
  expect(await prune(scene)).toMatchObject({ looked_at: 5, deleted: 1 });
  expect(await pairs(scene)).toEqual(['quote AT_A_NODE', 'quote CHANGED', 'quote SUBSCRIBED', 'quote WAITING']);
});

test('sound 16: whoever views a pair while it is forgotten is counted', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.look('quote', ['A', 'B']);
  await scene.tick();
  await scene.rows('quote', ['A', 'B']);
  await scene.finish('fresh');
  await scene.db.query('delete from pgfresh_engine.subscription');
  await scene.tick();
  await scene.clock.advance('20 seconds');
  await scene.tick();
  await scene.clock.advance('91 days');
  await scene.db.transact('viewer', async (tx) => {
    await tx.query(
      `insert into pgfresh_engine.subscription (user_id, type_id, key, subscribed_at, last_seen_at)
       select 'ann', type_id, 'A', pgfresh.clock(), pgfresh.clock() from pgfresh.data_type_registry`,
    );
    expect((await prune(scene)).deleted).toBe(2);
  });
  await scene.tick();
  await scene.tick();
  expect(await scene.db.query('select key, viewers, demanded from pgfresh_engine.pairs')).toEqual([
    { key: 'A', viewers: 1, demanded: true },
  ]);
  expect(await scene.open()).toEqual(['quote A 1']);
  expect(await scene.db.query('select from pgfresh_engine.demand_change')).toEqual([]);
});

test('sound 16: pairs are forgotten in bounded sets, and one that is locked is left for the next round', async () => {
  const scene = await PlannerScene.open();
  await scene.type('quote');
  await scene.db.query(
    `insert into pgfresh_engine.pairs (type_id, key, ok_at) select type_id, n::text, pgfresh.clock() - interval '1 year'
     from pgfresh.data_type_registry, generate_series(1, 4500) as n`,
  );
  await scene.db.transact('stranger', async (tx) => {
    await tx.query(`select from pgfresh_engine.pairs where key = '77' for update`);
    const calls = [await prune(scene), await prune(scene), await prune(scene)];
    expect(calls.map(({ looked_at, done }) => [looked_at, done])).toEqual([
      [2_000, false],
      [2_000, false],
      [500, true],
    ]);
    expect(calls.reduce((sum, { deleted }) => sum + deleted, 0)).toBe(4_499);
  });
  expect(await prune(scene)).toEqual({ looked_at: 1, deleted: 1, done: true });
});

test('sound 16: usage is forgotten after 400 days, also that of a source that is gone', async () => {
  const scene = await PlannerScene.open();
  await scene.db.query(
    `insert into pgfresh_engine.usage (source_id, hour, shard, bytes, calls)
     select s.id, date_trunc('hour', pgfresh.clock()) - n * interval '1 day', shard, 1, 1
     from (select id from pgfresh.sources union all select 999999) as s, generate_series(0, 800) as n, generate_series(0, 15) as shard`,
  );
  const left = () =>
    scene.db.query<{ source: number; rows: number; days: number }>(
      `select source_id as source, count(*)::int as rows, extract(days from max(pgfresh.clock() - hour))::int as days from pgfresh_engine.usage group by 1 order by 1`,
    );
  const sources = (await left()).map(({ source }) => source);
  const deleted: number[] = [];
  do deleted.push(await scene.queue.value<number>('pgfresh_engine.prune_usage()'));
  while (deleted.at(-1)! > 0);
  expect(Math.max(...deleted)).toBeLessThanOrEqual(10_000);
  expect(await left()).toEqual(sources.map((source) => ({ source, rows: 401 * 16, days: 400 })));
});
