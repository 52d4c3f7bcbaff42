import { beforeAll, beforeEach, expect, it } from 'vitest';
import { quoteType, RefreshScene } from '../refresh/scene.ts';

let scene: RefreshScene;
beforeAll(async () => {
  scene = await RefreshScene.open([
    quoteType(),
    quoteType({ name: 'plain', table: 'plain', sourceTimestamp: undefined, rows: () => null, sanity: undefined }),
  ]);
});
beforeEach(async () => {
  await scene.db.query(`
    truncate quote, plain cascade; drop function if exists public.meddle cascade; delete from pgfresh_engine.change;
    select pgfresh_engine.watch_changes(array(select type_id from pgfresh.data_type_registry))`);
});

/** Takes all marks, as "type: keys". */
async function marks(): Promise<string[]> {
  const rows = await scene.db.query<{ mark: string }>(
    `with taken as (delete from pgfresh_engine.change returning *)
     select r.data_type || ': ' || coalesce(array_to_string(array(select k from unnest(t.keys) as k order by k), ' '), 'whole') as mark
     from taken as t join pgfresh.data_type_registry as r using (type_id) order by 1`,
  );
  return rows.map(({ mark }) => mark);
}

it('a commit marks its pairs once, whether rows were written or not', async () => {
  for (const symbol of ['A', 'B', 'C']) scene.quote(symbol, 1);
  await scene.refresh(['A', 'B', 'C']);
  expect(await marks()).toEqual(['quote: A B C']);
  scene.quote('A', 2, '2026-01-05T12:01:00Z');
  const outcomes = (await scene.refresh(['A', 'B'])).map(({ outcome }) => outcome);
  expect([outcomes, await marks()]).toEqual([['fresh', 'unchanged'], ['quote: A B']]);
});

it('a failed refresh marks its pair too', async () => {
  scene.provider.json('/quote/A', { no: 'quote' });
  expect(await scene.outcome('A')).toBe('schema');
  expect(await marks()).toEqual(['quote: A']);
});

it('a commit marks nothing while the type is not watched', async () => {
  await scene.db.query('delete from pgfresh_engine.watched_type');
  scene.quote('A', 1);
  expect(await scene.outcome('A')).toBe('fresh');
  expect(await marks()).toEqual([]);
});

it("writes of users' own triggers in a commit are marked too, even to the same table", async () => {
  await scene.db.query(`
    insert into quote values ('B', 1), ('C', 1);
    create function public.meddle() returns trigger language plpgsql as $$ begin
      if new.symbol = 'A' then update quote set price = 2 where symbol = 'B'; insert into plain values ('P', 1); end if;
      return null;
    end $$;
    create trigger meddle after insert on quote for each row execute function public.meddle();
    delete from pgfresh_engine.change`);
  scene.quote('A', 1);
  await scene.refresh(['A']);
  expect(await marks()).toEqual(['plain: P', 'quote: A', 'quote: B']);
});

it('the next writes on the same connection are marked', async () => {
  scene.quote('A', 1);
  await scene.refresh(['A']);
  await marks();
  for (let n = 0; n < 12; n++) await scene.db.query(`insert into quote values ('N${n}', 1)`);
  expect(await marks()).toHaveLength(12);
});
