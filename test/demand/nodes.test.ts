import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { NodeDemand } from '../../src/demand/index.ts';
import { Events, type PgfreshEvent } from '../../src/events/index.ts';
import { blocked } from '../harness/blocked.ts';
import { processorTime } from '../harness/processor-time.ts';
import { expectRefusal } from '../harness/refusal.ts';
import { RegistryScene } from '../registry/scene.ts';

let scene: RegistryScene;
let quote: number;
let news: number;
beforeAll(async () => {
  scene = await RegistryScene.open();
});

const noon = '2026-01-05T12:00:00Z';
const at = (seconds: number) => new Date(Date.parse(noon) + seconds * 1_000);

beforeEach(async () => {
  await scene.db.query(`
    delete from pgfresh.data_type_registry; delete from pgfresh_engine.process where kind = 'gateway'; delete from pgfresh_engine.viewer_calls; delete from pgfresh.warnings;
    update pgfresh_engine.planner_state set demand_held_until = null`);
  await scene.clock.set(noon);
  quote = await scene.add('quote');
  news = await scene.add('news');
});

const register = (name = 'node') => scene.value<number>(`pgfresh_engine.register_process('gateway', $1::text)`, [name]);
const beat = (node: number) =>
  scene.value<boolean>(`(pgfresh_engine.heartbeat_process($1::bigint) -> 'alive')`, [node]);
const retire = (node: number) => scene.value<number>('pgfresh_engine.retire_process($1::bigint)', [node]);
const set = (
  node: number,
  counts: Record<string, number>,
  type = 'quote',
  db: Pick<typeof scene.db, 'query'> = scene.db,
) =>
  db
    .query<{ said: { changed: number; refused: { place: number; code: string }[] } }>(
      `select pgfresh_engine.set_node_demand($1::bigint, array_fill((select type_id from pgfresh.data_type_registry where data_type = $2::text), array[cardinality($3::text[])]), $3::text[], $4::int[]) as said`,
      [node, type, Object.keys(counts), Object.values(counts)],
    )
    .then(([row]) => row!.said.changed);
const nodes = () => scene.value<number>(`(select count(*) from pgfresh_engine.process where kind = 'gateway')`);
/** What each node has said, as "node type key viewers". */
const said = () =>
  scene.value<string[]>(
    `array(select concat_ws(' ', n.name, r.data_type, d.key, d.viewers) from pgfresh_engine.node_demand as d join pgfresh_engine.process as n on n.id = d.node_id join pgfresh.data_type_registry as r using (type_id) order by 1)`,
  );
const changes = () => scene.value<number>('(select count(*) from pgfresh_engine.demand_change)');

describe('a node', () => {
  it('says how many look at what; what it does not name stays', async () => {
    const node = await register();
    expect(await set(node, { A: 3, B: 1 })).toBe(2);
    expect(await set(node, { B: 2 })).toBe(1);
    expect(await said()).toEqual(['node quote A 3', 'node quote B 2']);
    await scene.tick();
    expect([await scene.pair('A'), await scene.pair('B')]).toMatchObject([
      { viewers: 3, demanded: true },
      { viewers: 2, demanded: true },
    ]);
    expect(await set(node, { A: 0, B: 2, C: 0 })).toBe(1);
    expect(await said()).toEqual(['node quote B 2']);
    await scene.tick();
    expect(await scene.pair('A')).toMatchObject({ viewers: 0, warm_until: at(15) });
    expect(await scene.pair('C')).toBeUndefined();
  });

  it('sound 16: says, changes and takes back 10,000 counts in about the same time', async () => {
    // Of a node that the statistics do not know.
    const other = await register('other');
    const counts = (viewers: number) =>
      Object.fromEntries(Array.from({ length: 10_000 }, (_, n) => [`K${n}`, viewers]));
    await set(other, counts(1));
    await scene.db.query('analyze pgfresh_engine.node_demand');
    const node = await register();
    const times: number[] = [];
    // As a gateway does it: on one connection, whose plans are kept.
    for (const viewers of [1, 2, 0]) {
      const since = await processorTime(scene.session);
      expect(await set(node, counts(viewers), 'quote', scene.session)).toBe(10_000);
      times.push((await processorTime(scene.session)) - since);
    }
    // Quadratic, it was more than five seconds each.
    expect(Math.max(...times)).toBeLessThan(2_500);
    expect(await scene.value(`(select sum(delta)::int from pgfresh_engine.demand_change)`)).toBe(10_000);
  });

  it('that says the same again writes nothing', async () => {
    const node = await register();
    await set(node, { A: 3, B: 1 });
    await scene.tick();
    expect(await set(node, { A: 3, B: 1 })).toBe(0);
    expect(await changes()).toBe(0);
  });

  it('can pass arrays whose first element is not the first', async () => {
    const node = await register();
    await scene.db.query(
      `select pgfresh_engine.set_node_demand($1::bigint, format('[5:6]={%s,%s}', $2::int, $3::int)::int[], '[0:1]={A,B}', '[-3:-2]={1,2}')`,
      [node, quote, news],
    );
    expect(await said()).toEqual(['node news B 2', 'node quote A 1']);
  });

  it('is added to others and to those who speak SQL', async () => {
    const [one, two] = [await register('one'), await register('two')];
    await set(one, { A: 3, B: 1 });
    await set(two, { A: 4 });
    await scene.subscribe('ann', 'A');
    await scene.subscribe('ben', 'A');
    await scene.subscribe('ann', 'C');
    await scene.tick();
    expect(await scene.pair('A')).toMatchObject({ viewers: 9 });
    expect(await scene.explain('A')).toMatchObject({ viewers: 9, viewers_by: { heartbeat: 2, gateway: 7 } });
    expect(
      await scene.db.query(
        'select data_type, key, viewers::int, adapters from pgfresh.get_active_subscriptions() order by key',
      ),
    ).toEqual([
      { data_type: 'quote', key: 'A', viewers: 9, adapters: ['gateway', 'heartbeat'] },
      { data_type: 'quote', key: 'B', viewers: 1, adapters: ['gateway'] },
      { data_type: 'quote', key: 'C', viewers: 1, adapters: ['heartbeat'] },
    ]);
  });

  it('stays as long as it renews its lease', async () => {
    const node = await register();
    for (let turn = 1; turn <= 4; turn++) {
      await scene.clock.set(at(turn * 29));
      expect(await beat(node)).toBe(true);
      await scene.tick();
      await scene.cleanUp();
    }
    expect(await nodes()).toBe(1);
    await scene.clock.advance('30 seconds');
    expect(await beat(node)).toBe(false);
  });

  it('that is retired has left, and its users with it', async () => {
    const node = await register();
    await set(node, { A: 3 });
    await scene.tick();
    expect(await retire(node)).toBe(1);
    expect(await retire(node)).toBe(0);
    await scene.tick();
    expect(await scene.pair('A')).toMatchObject({ viewers: 0, warm_until: at(15) });
    await expectRefusal(set(node, { A: 1 }), 'PGF_LEASE_LOST');
    expect(await beat(node)).toBe(false);
  });

  it('that is retired while it still writes takes that with it too', async () => {
    const node = await register();
    const { retired } = await scene.db.transact('set', async (tx) => {
      await set(node, { A: 3 }, 'quote', tx);
      const waits = retire(node);
      await blocked(scene.db);
      return { retired: waits };
    });
    expect(await retired).toBe(1);
    await scene.tick();
    expect(await said()).toEqual([]);
    expect((await scene.pair('A'))?.viewers ?? 0).toBe(0);
  });
});

describe('a node that is silent for 30 s', () => {
  it.each([
    ['the planner', () => scene.tick()],
    ['the cleanup', () => scene.cleanUp()],
  ])('takes its counts with it, by %s', async (_, notice) => {
    const [silent, alive] = [await register('silent'), await register('alive')];
    await set(silent, { A: 3, B: 1 });
    await set(alive, { A: 4 });
    await scene.tick();
    await scene.clock.set(at(29.9));
    await beat(alive);
    await notice();
    expect(await nodes()).toBe(2);
    await scene.clock.set(at(30));
    await expectRefusal(set(silent, { A: 3 }), 'PGF_LEASE_LOST');
    await notice();
    expect(await said()).toEqual(['alive quote A 4']);
    await scene.tick();
    expect([await scene.pair('A'), await scene.pair('B')]).toMatchObject([
      { viewers: 4 },
      { viewers: 0, warm_until: at(45) },
    ]);
  });

  it('while it is just writing is left to the next time', async () => {
    const node = await register();
    await scene.db.transact('set', async (tx) => {
      await set(node, { A: 3 }, 'quote', tx);
      await scene.clock.set(at(31));
      await scene.tick();
      expect(await nodes()).toBe(1);
    });
    await scene.tick();
    expect(await nodes()).toBe(0);
    await scene.tick();
    expect((await scene.pair('A'))?.viewers ?? 0).toBe(0);
  });

  it('is held for 120 s if it was the last one and had 10 pairs, each time', async () => {
    const keys = Object.fromEntries(Array.from({ length: 10 }, (_, n) => [`K${n}`, 1]));
    for (const turn of [1, 2]) {
      await set(await register(), keys);
      await scene.tick();
      await scene.clock.advance('30 seconds');
      await scene.tick();
      expect(await scene.cleanUp()).toEqual({ skipped: 'held' });
      await scene.clock.advance('119.9 seconds');
      await scene.tick();
      expect(await scene.value('(select count(*) from pgfresh_engine.pairs where viewers = 1)')).toBe(10);
      await scene.clock.advance('0.1 seconds');
      await scene.tick();
      expect([await nodes(), await said()]).toEqual([0, []]);
      expect(await scene.warnings()).toMatchObject([{ code: 'demand_lost', count: turn }]);
      await scene.cleanUp();
    }
  });

  it('is let go of as soon as another one has its users', async () => {
    const keys = Object.fromEntries(Array.from({ length: 10 }, (_, n) => [`K${n}`, 1]));
    await set(await register('old'), keys);
    await scene.clock.advance('31 seconds');
    await scene.tick();
    await set(await register('new'), { K0: 1 });
    await scene.tick();
    expect(await said()).toEqual(['new quote K0 1']);
  });
});

describe('NodeDemand', () => {
  const open = () => {
    const events = new Events();
    const failed: string[] = [];
    events.subscribe((event: PgfreshEvent) => {
      if (event.type === 'demand.failed') failed.push(event.problem);
    });
    return { demand: new NodeDemand({ db: scene.db, events, nodeName: 'gateway' }), failed };
  };

  it('writes what has changed, and ends with its stop', async () => {
    const { demand, failed } = open();
    await demand.start();
    demand.set(quote, 'A', 2);
    demand.set(quote, 'A', 3);
    demand.set(news, 'A', 1);
    demand.set(quote, 'B', 1);
    demand.set(quote, 'B', 0);
    await demand.flush();
    expect(await said()).toEqual(['gateway news A 1', 'gateway quote A 3']);
    demand.set(news, 'A', 0);
    await demand.flush();
    expect(await said()).toEqual(['gateway quote A 3']);
    await demand.stop();
    expect([await nodes(), await said(), failed]).toEqual([0, [], []]);
  });

  it('registers again when its lease was lost, and says everything again', async () => {
    const { demand } = open();
    await demand.renew();
    for (const key of ['A', 'B', 'C']) demand.set(quote, key, 2);
    await demand.flush();
    demand.set(quote, 'C', 0);
    await demand.flush();
    // Noticed by a write …
    await scene.clock.advance('31 seconds');
    await scene.tick();
    expect(await said()).toEqual([]);
    demand.set(quote, 'B', 5);
    await demand.flush();
    expect(await said()).toEqual(['gateway quote A 2', 'gateway quote B 5']);
    // … or by the renewal.
    await scene.clock.advance('31 seconds');
    await scene.tick();
    await demand.renew();
    await demand.flush();
    expect(await said()).toEqual(['gateway quote A 2', 'gateway quote B 5']);
    // A renewal in time changes nothing.
    await demand.renew();
    await demand.flush();
    expect(await nodes()).toBe(1);
  });

  it('writes the others of a batch in which some are not to be had', async () => {
    const { demand, failed } = open();
    await scene.db.query('create table if not exists listed (key text)');
    const listed = await scene.add('listed', { key_table: 'listed', key_table_column: 'key' });
    await scene.db.query('drop table listed');
    const short = await scene.add('short', { key_pattern: '^.$' });
    await demand.renew();
    for (let n = 0; n < 50; n++) demand.set(quote, `K${n}`, 1);
    demand.set(-1, 'A', 1);
    demand.set(listed, 'A', 1);
    demand.set(short, 'AA', 1);
    demand.set(quote, 'A\nB', 1);
    for (let n = 0; n < 50; n++) demand.set(news, `K${n}`, 1);
    await demand.flush();
    expect(await said()).toHaveLength(100);
    expect(
      failed
        .map((problem) => /no data type|no table|not a key|control characters/.exec(problem)?.[0] ?? problem)
        .toSorted(),
    ).toEqual(['control characters', 'no data type', 'no table', 'not a key']);
    await demand.flush();
    expect(failed).toHaveLength(4);
  });

  it('keeps what could not be written for the next time, unless something newer was said', async () => {
    const { demand } = open();
    await demand.renew();
    await scene.db.query(
      'alter function pgfresh_engine.set_node_demand(bigint, int[], text[], int[]) rename to mislaid',
    );
    demand.set(quote, 'A', 1);
    demand.set(quote, 'B', 1);
    const flushing = demand.flush();
    demand.set(quote, 'B', 2);
    await expect(flushing).rejects.toMatchObject({ code: '42883' });
    await scene.db.query(
      'alter function pgfresh_engine.mislaid(bigint, int[], text[], int[]) rename to set_node_demand',
    );
    await demand.flush();
    expect(await said()).toEqual(['gateway quote A 1', 'gateway quote B 2']);
  });

  describe('of a pair whose first viewer was counted by the statement that planned it', () => {
    /** As a gateway does when somebody wants a pair. */
    const want = async (demand: NodeDemand, key: string): Promise<boolean> => {
      const [row] = await scene.db.query<{ counted: boolean }>(
        `select counted from pgfresh_engine.want_pairs('{quote}', array[$1::text], true, $2::bigint)`,
        [key, demand.node],
      );
      if (row!.counted) demand.counted(demand.node!, quote, key);
      return row!.counted;
    };
    const later = () => demand().flush(performance.now() + 10_000);
    let demand: () => NodeDemand;
    beforeEach(async () => {
      const opened = open().demand;
      demand = () => opened;
      await opened.renew();
    });

    it('writes nothing before it writes that for certain', async () => {
      expect(await want(demand(), 'A')).toBe(true);
      demand().set(quote, 'A', 1);
      await scene.db.query('delete from pgfresh_engine.node_demand');
      await demand().flush();
      expect(await said()).toEqual([]);
      // As after a crash of the database that has forgotten it.
      await later();
      expect(await said()).toEqual(['gateway quote A 1']);
    });

    it('writes every other number at once', async () => {
      await want(demand(), 'A');
      demand().set(quote, 'A', 2);
      await demand().flush();
      expect(await said()).toEqual(['gateway quote A 2']);
      demand().set(quote, 'A', 1);
      await demand().flush();
      expect(await said()).toEqual(['gateway quote A 1']);
      demand().set(quote, 'A', 0);
      await demand().flush();
      await later();
      expect(await said()).toEqual([]);
    });

    it('takes back a viewer who has not come', async () => {
      await want(demand(), 'A');
      await demand().flush();
      expect(await said()).toEqual(['gateway quote A 1']);
      await later();
      expect(await said()).toEqual([]);
    });

    it('leaves a number that is there as it is', async () => {
      demand().set(quote, 'A', 3);
      await demand().flush();
      expect(await want(demand(), 'A')).toBe(false);
      expect(await said()).toEqual(['gateway quote A 3']);
    });

    it('says it again under a new lease, and counts nobody for a node without one', async () => {
      await want(demand(), 'A');
      demand().set(quote, 'A', 1);
      await scene.clock.advance('31 seconds');
      await scene.tick();
      expect(await want(demand(), 'B')).toBe(false);
      await demand().renew();
      await demand().flush();
      expect(await said()).toEqual(['gateway quote A 1']);
    });
  });
});
