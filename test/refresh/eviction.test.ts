import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { defineDataType, type DataTypeDefinition } from '../../src/index.ts';
import { evictRows } from '../../src/refresh/index.ts';
import { blocked } from '../harness/blocked.ts';
import { freezeClock } from '../harness/clock.ts';
import { openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { openSession } from '../harness/session.ts';
import { RefreshScene } from './scene.ts';

const price = defineDataType({
  name: 'price',
  source: 'market',
  table: 'plain',
  key: 'symbol',
  timestamp: 'fetched_at',
  ttl: '1m',
  schema: z.object({ symbol: z.string(), price: z.number() }),
  request: (key) => ({ url: `/price/${key}` }),
  rows: (answer) => answer,
  evictAfter: '30d',
});
const kept = defineDataType({ ...price, name: 'kept', table: 'quote', evictAfter: undefined });
const child = defineDataType({ ...price, name: 'child', table: 'child', dependsOn: ['price'], evictAfter: undefined });

async function open(keys: readonly string[], ...types: DataTypeDefinition[]) {
  const scene = await RefreshScene.open([price, ...types]);
  const clock = await freezeClock(scene.db);
  await scene.db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
  for (const key of keys) scene.provider.json(`/price/${key}`, { symbol: key, price: 1 });
  const words = {
    refresh: (list: readonly string[], name = 'price') => scene.refresh(list, name),
    /** Somebody comes to view a pair. */
    view: async (key: string, type = 'price') => {
      await scene.db.query(
        `insert into pgfresh_engine.subscription (user_id, type_id, key, subscribed_at, last_seen_at)
         select 'ada', type_id, $1::text, pgfresh.clock(), pgfresh.clock() from pgfresh.data_type_registry where data_type = $2::text`,
        [key, type],
      );
      await scene.db.query('select pgfresh_engine.plan_due_pairs()');
    },
    /** Everybody leaves, and what they have viewed cools down. */
    leave: async () => {
      await scene.db.query('delete from pgfresh_engine.subscription');
      await scene.db.query('select pgfresh_engine.plan_due_pairs()');
      await clock.advance('16 seconds');
      await scene.db.query('select pgfresh_engine.plan_due_pairs()');
      await scene.db.query(`select pgfresh.cancel_queue_jobs(p_data_type => 'price')`);
    },
    left: async (table = 'plain') => (await scene.rows<{ symbol: string }>(table)).map(({ symbol }) => symbol),
    evict: async (batch?: number) =>
      evictRows(scene.db, await scene.type('price'), { signal: new AbortController().signal, batch }),
    state: (key: string) => scene.value<string>(`pgfresh.explain_pair('price', $1::text) ->> 'state'`, [key]),
  };
  if (keys.length > 0) await words.refresh(keys);
  return { scene, clock, ...words };
}

describe('rows that nobody views', () => {
  it('truth 16: go after the time of their type, and are missing then', async () => {
    const { scene, clock, evict, left, state } = await open(['A', 'B'], kept);
    await scene.db.query(`insert into plain values ('STRANGER', 1, null)`);
    await clock.advance('29 days');
    expect([await evict(), await left()]).toEqual([{ keys: 0, problem: undefined }, ['A', 'B', 'STRANGER']]);
    await clock.advance('2 days');
    expect([await evict(), await left()]).toEqual([{ keys: 2, problem: undefined }, ['STRANGER']]);
    expect(await state('A')).toBe('missing');
    // Nobody wants it, so it is not fetched again; and there is nothing left to do.
    await scene.db.query('select pgfresh_engine.plan_due_pairs()');
    await scene.db.query('select pgfresh.check_and_queue_stale_data()');
    expect(await scene.value('select count(*)::int from pgfresh_engine.job')).toBe(0);
    expect(await evict()).toEqual({ keys: 0, problem: undefined });
  });

  it('truth 16: stay while somebody views them, and count from when the last one has left', async () => {
    const { clock, evict, left, view, leave } = await open(['A', 'B']);
    await view('A');
    await clock.advance('31 days');
    expect([(await evict()).keys, await left()]).toEqual([1, ['A']]);
    await leave();
    await clock.advance('29 days');
    expect([(await evict()).keys, await left()]).toEqual([0, ['A']]);
    await clock.advance('2 days');
    expect([(await evict()).keys, await left()]).toEqual([1, []]);
  });

  it('truth 16: stay for a viewer whom the planner has not heard of yet', async () => {
    const { scene, clock, evict, left } = await open(['A']);
    await clock.advance('31 days');
    await scene.db.query(
      `with node as (select pgfresh_engine.register_process('gateway', 'n') as id)
       insert into pgfresh_engine.node_demand (node_id, type_id, key, viewers)
       select node.id, type_id, 'A', 1 from node, pgfresh.data_type_registry where data_type = 'price'`,
    );
    expect([(await evict()).keys, await left()]).toEqual([0, ['A']]);
  });

  it('truth 16: stay for one who arrives at that moment, and are fetched for one who comes a moment later', async () => {
    const { scene, clock, evict, left, view } = await open(['A', 'B']);
    await clock.advance('31 days');
    // Somebody is subscribing: the pair is theirs until they have done.
    const viewer = await openSession(scene.url);
    await viewer.query('begin');
    await viewer.query(`select from pgfresh_engine.pairs where key = 'A' for update`);
    expect([(await evict()).keys, await left()]).toEqual([1, ['A']]);
    await viewer.query('commit');
    // Somebody comes while the rows are being deleted: they wait, and it is fetched for them.
    const slow = await openSession(scene.url);
    await slow.query('begin');
    await slow.query(`select from plain where symbol = 'A' for update`);
    const evicting = evict();
    await blocked(scene.db);
    const viewing = view('A');
    await slow.query('commit');
    expect((await evicting).keys).toBe(1);
    await viewing;
    await scene.db.query('select pgfresh_engine.plan_due_pairs()');
    expect(await scene.value(`select count(*)::int from pgfresh_engine.job where key = 'A'`)).toBe(1);
  });

  it('truth 16: stay for a subscription that the planner has not heard of yet', async () => {
    const { scene, clock, evict, left } = await open(['A', 'B']);
    await clock.advance('31 days');
    await scene.db.query(
      `insert into pgfresh_engine.subscription (user_id, type_id, key, subscribed_at, last_seen_at)
       select 'ada', type_id, 'A', pgfresh.clock(), pgfresh.clock() from pgfresh.data_type_registry where data_type = 'price'`,
    );
    expect([(await evict()).keys, await left()]).toEqual([1, ['A']]);
  });

  it('truth 16: stay after a refresh that was asked for, and while one is queued', async () => {
    const { scene, clock, evict, left, refresh } = await open(['A', 'B', 'C']);
    await clock.advance('20 days');
    await refresh(['A']);
    await clock.advance('11 days');
    await scene.enqueue('price', ['B']);
    expect([(await evict()).keys, await left()]).toEqual([1, ['A', 'B']]);
  });

  it.each([
    ['are viewed', 'demanded = true, unviewed_since = null, viewers = 1'],
    ['are refreshed', 'ok_at = pgfresh.clock()'],
  ])('truth 16: stay where they %s between the choice of pairs and their lock', async (_what, change) => {
    const { scene, clock } = await open(['A', 'B']);
    await clock.advance('31 days');
    // Reading pairs goes on; to lock one waits for the end of this.
    const viewer = await openSession(scene.url);
    await viewer.query('begin');
    await viewer.query('lock table pgfresh_engine.pairs in exclusive mode');
    const choosing = scene.db.query<{ keys: string[] }>('select keys from pgfresh_engine.lock_evictable($1::int, 10)', [
      (await scene.type('price')).id,
    ]);
    await blocked(scene.db);
    await viewer.query(`update pgfresh_engine.pairs set ${change} where key = 'A'`);
    await viewer.query('commit');
    expect((await choosing)[0]!.keys).toEqual(['B']);
  });

  it('truth 16: are not noted as gone where somebody views them or a refresh is queued', async () => {
    const { scene, view } = await open(['A', 'B', 'C']);
    await view('A');
    await scene.enqueue('price', ['B']);
    await scene.db.query(`select pgfresh_engine.note_evicted($1::int, '{A,B,C}')`, [(await scene.type('price')).id]);
    expect(await scene.value(`array(select key from pgfresh_engine.pairs where seen and row_at is null)`)).toEqual([
      'C',
    ]);
  });

  it('truth 16: stay while a type that needs them is viewed', async () => {
    const { clock, evict, left, view } = await open(['A'], child);
    await clock.advance('31 days');
    await view('A', 'child');
    expect([(await evict()).keys, await left()]).toEqual([0, ['A']]);
  });

  it('truth 16: go in bounded batches, and one that others refer to keeps only itself', async () => {
    const keys = Array.from({ length: 25 }, (_, n) => `K${String(n).padStart(2, '0')}`);
    const { scene, clock, evict, left } = await open(keys);
    await scene.db.query(
      `create table public.holding (symbol text references plain); insert into holding values ('K07')`,
    );
    await clock.advance('31 days');
    await scene.db.query(`create table public.gone (xid xid8 default pg_current_xact_id());
      create function public.note() returns trigger language plpgsql as 'begin insert into public.gone default values; return old; end';
      create trigger note after delete on plain for each row execute function note()`);
    const { keys: gone, problem } = await evict(10);
    expect([gone, problem, await left()]).toEqual([
      24,
      expect.stringContaining('violates foreign key constraint') as string,
      ['K07'],
    ]);
    const largest = `select max(c.n)::int from (select count(*) as n from gone group by xid) as c`;
    expect(await scene.value(largest)).toBeLessThanOrEqual(10);
    expect(await evict(10)).toMatchObject({ keys: 0 });
    await scene.db.query('drop table public.holding');
    expect([(await evict(10)).keys, await left()]).toEqual([1, []]);
  });

  it('truth 16: are deleted with the rights of the login, and not without them', async () => {
    const { scene, clock, left } = await open(['A']);
    await clock.advance('31 days');
    const { name: login, url } = await createLogin(scene.url, 'pgfresh_worker');
    await scene.db.query(`grant select on public.test_clock, plain to public`);
    const db = openDatabase(url);
    const type = await scene.type('price');
    const { signal } = new AbortController();
    await expect(evictRows(db, type, { signal })).rejects.toMatchObject({ code: '42501' });
    // A trigger of the table runs as the worker's login, and so gets nothing that the login does not have.
    await scene.db.query(`
      create table public.seen_as (name text); grant insert on seen_as to public; grant delete on plain to "${login}";
      create function public.note_role() returns trigger language plpgsql as
        'begin insert into public.seen_as values (current_user); return old; end';
      create trigger note_role before delete on plain for each row execute function note_role()`);
    expect(await evictRows(db, type, { signal })).toMatchObject({ keys: 1 });
    expect([await left(), await scene.rows('seen_as', 'name, name')]).toEqual([[], [{ name: login }]]);
    await db.close();
  });
});
