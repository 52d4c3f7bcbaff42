import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { NodeDemand } from '../../src/demand/index.ts';
import { Events } from '../../src/events/index.ts';
import { RegistryScene } from '../registry/scene.ts';

let scene: RegistryScene;
beforeAll(async () => {
  scene = await RegistryScene.open();
  await scene.db.query('create table symbols (symbol text primary key, active boolean not null default true)');
});

const noon = '2026-01-05T12:00:00Z';
let quote: number;
let node: number;

beforeEach(async () => {
  await scene.db.query(`
    delete from pgfresh.data_type_registry; delete from pgfresh_engine.process where kind = 'gateway'; delete from pgfresh_engine.viewer_calls; delete from pgfresh.warnings;
    delete from public.mirror; delete from symbols; insert into symbols values ('A'), ('B'), ('C');
    update pgfresh_engine.planner_state set demand_held_until = null`);
  await scene.clock.set(noon);
  quote = await scene.add('quote', { key_table: 'symbols', key_table_column: 'symbol', key_active_column: 'active' });
  node = await scene.value<number>(`pgfresh_engine.register_process('gateway', $1::text)`, ['node']);
});

interface Said {
  readonly changed: number;
  readonly refused: readonly { place: number; code: string; problem: string }[];
}
const set = (counts: Record<string, number>, type = quote) =>
  scene.value<Said>(
    `pgfresh_engine.set_node_demand($1::bigint, array_fill($2::int, array[cardinality($3::text[])]), $3::text[], $4::int[])`,
    [node, type, Object.keys(counts), Object.values(counts)],
  );
const counted = () =>
  scene.value<string[]>(`array(select key || ' ' || viewers from pgfresh_engine.node_demand order by key)`);
const subscriptions = () => scene.value<number>('(select count(*)::int from pgfresh_engine.subscription)');
const demanded = (dataType = 'quote') =>
  scene.value<string[]>(
    `array(select p.key from pgfresh_engine.pairs as p join pgfresh.data_type_registry as r using (type_id) where p.demanded and r.data_type = $1::text order by 1)`,
    [dataType],
  );
/** Ticks that look at what a minute brings, with the cleanup that comes with each sweep. */
const minute = async () => {
  for (let n = 0; n < 6; n++) {
    await scene.clock.advance('10 seconds');
    await scene.value('pgfresh_engine.heartbeat_process($1::bigint)', [node]);
    await scene.tick();
  }
  await scene.cleanUp();
};

const harms: [string, () => Promise<unknown>][] = [
  ['its key is deleted', () => scene.db.query(`delete from symbols`)],
  ['its key is inactive', () => scene.db.query(`update symbols set active = false`)],
  ['the key table is gone', () => scene.db.query(`alter table symbols rename to mislaid`)],
  ['its data type has another name', () => scene.change('quote', { data_type: 'price' })],
  ['its data type spells keys in another way', () => scene.change('quote', { normalise: 'lower' })],
  [
    'its data type has a pattern instead',
    () =>
      scene.change('quote', { key_table: null, key_table_column: null, key_active_column: null, key_pattern: '^no$' }),
  ],
  ['its data type is deleted', () => scene.db.query(`delete from pgfresh.data_type_registry`)],
  [
    'its data type is deleted and added again',
    async () => {
      await scene.db.query(`delete from pgfresh.data_type_registry`);
      await scene.add('quote', { key_table: 'symbols', key_table_column: 'symbol' });
    },
  ],
];

describe('sound 4: leaving works when', () => {
  it.each(harms)('%s', async (_, harm) => {
    await set({ A: 2, B: 1 });
    await scene.subscribe('ann', 'A');
    await scene.tick();
    await harm();
    try {
      expect(await set({ A: 0, B: 0 })).toMatchObject({ refused: [] });
      await scene.leave('ann', 'A');
      expect([await counted(), await subscriptions()]).toEqual([[], 0]);
      await scene.tick();
      await scene.clock.advance('15 seconds');
      await scene.tick();
      expect(
        await scene.value(
          '(select count(*)::int from pgfresh_engine.pairs where demanded or viewers > 0 or job_id is not null)',
        ),
      ).toBe(0);
    } finally {
      await scene.db.query('alter table if exists mislaid rename to symbols');
    }
  });

  it.each([
    ['a key that cannot be one', `A\nB`, 'quote'],
    ['a data type that is not there', 'A', 'nothing'],
    ['neither', null, null],
  ])('it is of %s', async (_, key, type) => {
    expect(
      await scene.value('pgfresh.remove_active_subscription($1::text, $2::text, $3::text)', ['ann', key, type]),
    ).toBe(false);
  });

  it('it is one of a batch with bad entries, and the good ones count', async () => {
    await set({ A: 2, B: 1 });
    await scene.db.query(`delete from symbols where symbol in ('A', 'B')`);
    const said = await scene.value<Said>(
      `pgfresh_engine.set_node_demand($1::bigint, array[$2::int, $2::int, -1, $2::int, null], array['A', 'B', 'C', 'C', 'A'], '{0,5,1,3,1}')`,
      [node, quote],
    );
    expect(said).toMatchObject({
      changed: 2,
      refused: expect.arrayContaining([
        expect.objectContaining({ place: 2, code: 'PGF_KEY_UNKNOWN' }),
        expect.objectContaining({ place: 3, code: 'PGF_TYPE_UNKNOWN' }),
        expect.objectContaining({ place: 5, code: 'PGF_TYPE_UNKNOWN' }),
      ]) as unknown,
    });
    expect(said.refused).toHaveLength(3);
    expect(await counted()).toEqual(['B 1', 'C 3']);
  });
});

describe('sound 4: a data type that is renamed', () => {
  it('takes its demand along, and a gateway that knew the old name can still leave and come', async () => {
    const demand = new NodeDemand({ db: scene.db, events: new Events(), nodeName: 'gateway' });
    await demand.renew();
    demand.set(quote, 'A', 2);
    await demand.flush();
    await scene.subscribe('ann', 'B');
    await scene.tick();
    await scene.change('quote', { data_type: 'price' });
    await scene.tick();
    expect(await demanded('price')).toEqual(['A', 'B']);
    // Another one takes its name, and is not meant.
    await scene.add('quote');
    demand.set(quote, 'C', 1);
    demand.set(quote, 'A', 0);
    await demand.flush();
    expect(await scene.leave('ann', 'B', 'quote')).toBe(true);
    expect(await counted()).toEqual(['C 1']);
  });
});

describe('sound 4: a viewer who arrives while the key is unlisted for a moment', () => {
  it('is counted afterwards: the gateway asks again', async () => {
    const failed: string[] = [];
    const events = new Events();
    events.subscribe((event) => event.type === 'demand.failed' && failed.push(event.problem));
    const demand = new NodeDemand({ db: scene.db, events, nodeName: 'gateway' });
    await demand.renew();
    await scene.db.query(`update symbols set active = false where symbol in ('A', 'B')`);
    for (const key of ['A', 'B', 'C']) demand.set(quote, key, 1);
    await demand.flush();
    expect(await counted()).toEqual(['C 1']);
    await scene.db.query(`update symbols set active = true`);
    // Not before its time, and no more once the viewers have left.
    await demand.flush();
    expect(await counted()).toEqual(['C 1']);
    demand.set(quote, 'B', 0);
    await demand.flush(performance.now() + 6_000);
    expect(await counted()).toEqual(['A 1', 'C 1']);
    expect(failed).toHaveLength(2);
    await scene.tick();
    expect(await demanded()).toEqual(['A', 'C']);
  });

  it('and is refused again is told of once', async () => {
    const failed: string[] = [];
    const events = new Events();
    events.subscribe((event) => event.type === 'demand.failed' && failed.push(event.problem));
    const demand = new NodeDemand({ db: scene.db, events, nodeName: 'gateway' });
    await demand.renew();
    demand.set(quote, 'gone', 1);
    for (let n = 0; n < 3; n++) await demand.flush(performance.now() + n * 6_000);
    expect(failed).toEqual([`'gone' is not a key of quote`]);
  });
});

describe('sound 4: what is no key any more is revoked everywhere', () => {
  const calls = async () => {
    const jobs = await scene.value<{ id: number; key: string; attempt: number }[]>('pgfresh.get_queue_batch(1000)');
    for (const { id, attempt } of jobs)
      await scene.db.query('select pgfresh.complete_queue_job($1::bigint, 0, $2::int)', [id, attempt]);
    return jobs.map(({ key }) => key).toSorted();
  };

  it.each([
    ['deleted', `delete from symbols where symbol in ('A', 'B')`],
    ['inactive', `update symbols set active = false where symbol in ('A', 'B')`],
  ])('%s: no call although heartbeats and counts go on, and again when it is back', async (_, harm) => {
    await scene.subscribe('ann', 'A');
    await set({ B: 2, C: 1 });
    await scene.tick();
    expect(await calls()).toEqual(['A', 'B', 'C']);
    await scene.db.query(harm);
    for (let n = 0; n < 3; n++) {
      await scene.subscribe('ann', 'A');
      await minute();
      expect(await calls()).toEqual(['C']);
    }
    expect(await demanded()).toEqual(['C']);
    expect(await scene.pair('B')).toMatchObject({ demanded: false, viewers: 2 });
    // One leaves meanwhile. The other is served again as soon as its key is back.
    await set({ B: 0 });
    await scene.tick();
    await scene.db.query(`insert into symbols values ('A'), ('B') on conflict (symbol) do update set active = true`);
    await scene.clock.advance('5 seconds');
    await scene.tick();
    expect(await demanded()).toEqual(['A', 'C']);
    expect(await calls()).toEqual(['A']);
  });

  it('a job that waits is cancelled within a minute, whoever asked for it', async () => {
    await scene.subscribe('ann', 'A');
    await scene.db.query(
      `select pgfresh_engine.queue_refreshes('quote', '{B,C}', 5, p_run_at => pgfresh.clock() + interval '1 hour')`,
    );
    expect(await scene.queued()).toEqual(['A', 'B', 'C']);
    await scene.db.query(`delete from symbols where symbol in ('A', 'B')`);
    await scene.cleanUp();
    expect(await scene.queued()).toEqual(['C']);
    expect(
      await scene.value(
        `array(select key || ' ' || status || ' ' || error from pgfresh_engine.history_other where type_id = $1::int order by 1)`,
        [quote],
      ),
    ).toEqual(['A cancelled its key is not listed any more', 'B cancelled its key is not listed any more']);
    // It says nothing against the pair.
    await scene.db.query(`insert into symbols values ('A')`);
    await scene.subscribe('ann', 'A');
    await scene.tick();
    await scene.clock.advance('5 seconds');
    await scene.tick();
    expect(await scene.queued()).toEqual(['A', 'C']);
  });

  it('looks at open jobs in chunks, and goes on where it stood', async () => {
    await scene.db.query(
      `select pgfresh_engine.queue_refreshes('quote', '{A,B,C}');
       insert into symbols select 'K' || n from generate_series(1, 10) as n;
       select pgfresh_engine.queue_refreshes('quote', array(select 'K' || n from generate_series(1, 10) as n));
       delete from symbols where symbol like 'K%'`,
    );
    const left = async () => (await scene.queued()).length;
    for (const expected of [12, 8, 4, 3]) {
      await scene.value('pgfresh_engine.review_open_jobs(pgfresh.clock(), 4)');
      expect(await left()).toBe(expected);
    }
    // And begins anew at the end.
    await scene.db.query(`delete from symbols`);
    await scene.value('pgfresh_engine.review_open_jobs(pgfresh.clock(), 4)');
    expect(await left()).toBe(0);
  });
});
