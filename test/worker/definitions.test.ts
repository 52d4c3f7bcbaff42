import { describe, expect, it } from 'vitest';
import type { Answer } from '../harness/provider.ts';
import { quoteType, RefreshScene } from '../refresh/scene.ts';
import { drained, startWorker, until } from './scene.ts';

const keysOf = (count: number) => Array.from({ length: count }, (_, n) => `K${n}`);

/** A scene with two sources, which the provider tells apart by the first part of the path. */
async function open(): Promise<RefreshScene> {
  const scene = await RefreshScene.open([quoteType()], ['second']);
  scene.provider.answers.set('*', (request, response) => answer(request, response));
  return scene;
}
const answer: Answer = (request, response) => {
  const symbol = request.url!.split('/').at(-1);
  response
    .writeHead(200, { 'content-type': 'application/json' })
    .end(JSON.stringify({ symbol, price: 1, at: '2026-01-05T12:00:00Z' }));
};
const start = (scene: RefreshScene) =>
  startWorker(scene, {
    sources: scene.config.sources.map((source) => ({ ...source, baseUrl: `${scene.provider.url}/${source.name}` })),
  });
const callsOf = (scene: RefreshScene, source: string) =>
  scene.provider.asked.filter((path) => path.startsWith(`/${source}/`)).length;
const booked = (scene: RefreshScene, source: string) =>
  scene.value<number>(
    `select coalesce(sum(calls), 0)::int from pgfresh_engine.usage where source_id = (select id from pgfresh.sources where name = $1::text)`,
    [source],
  );
const change = (scene: RefreshScene, set: string) =>
  scene.db.query(`update pgfresh.data_type_registry set ${set} where data_type = 'quote'`);

describe('a worker', () => {
  it('sound 3: calls the source that a data type has now, and books the calls there', async () => {
    const scene = await open();
    await start(scene);
    await scene.enqueue('quote', ['FIRST']);
    await drained(scene);
    await change(scene, `source = 'second'`);
    await scene.enqueue('quote', keysOf(12));
    await drained(scene);
    expect([callsOf(scene, 'market'), callsOf(scene, 'second')]).toEqual([1, 12]);
    expect([await booked(scene, 'market'), await booked(scene, 'second')]).toEqual([1, 12]);
    expect(await scene.value('select count(*)::int from quote')).toBe(13);
  });

  it('sound 3: settles a call that is under way where it was made, and asks again where the data type is now', async () => {
    const scene = await open();
    const [asked, goOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    scene.provider.answers.set('/market/quote/A', (request, response) => {
      asked.resolve();
      void goOn.promise.then(() => answer(request, response));
    });
    await scene.db.query(`update pgfresh.sources set quota_bytes = 1000000000 where name in ('market', 'second')`);
    await start(scene);
    await scene.enqueue('quote', ['A']);
    await asked.promise;
    await change(scene, `source = 'second', estimated_data_size_bytes = 100`);
    goOn.resolve();
    await drained(scene);
    expect(scene.provider.asked).toEqual(['/market/quote/A', '/second/quote/A']);
    expect([await booked(scene, 'market'), await booked(scene, 'second')]).toEqual([1, 1]);
    expect(await scene.value('select sum(reserved)::int from pgfresh_engine.source_state')).toBe(0);
    expect(await scene.value(`select array_agg(outcome) from pgfresh_engine.history_attempt`)).toEqual(['redefined']);
    expect(await scene.value(`select array_agg(outcome) from pgfresh_engine.history_succeeded`)).toEqual(['fresh']);
  });

  it('sound 3: writes an answer only to the table that its data type has now', async () => {
    const scene = await open();
    await scene.db.query('create table public.newer (like public.quote including all)');
    const [asked, goOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    scene.provider.answers.set('/market/quote/A', (request, response) => {
      asked.resolve();
      void goOn.promise.then(() => answer(request, response));
    });
    await start(scene);
    await scene.enqueue('quote', ['A']);
    await asked.promise;
    await change(scene, `table_name = 'newer'`);
    goOn.resolve();
    await drained(scene);
    expect(await scene.rows('quote')).toEqual([]);
    expect(await scene.rows('newer')).toEqual([{ symbol: 'A', price: 1 }]);
  });

  it('sound 9: starts and serves the others when the table of one data type is missing', async () => {
    const plain = {
      sourceTimestamp: undefined,
      rows: ({ symbol, price }: { symbol: string; price: number }) => ({ symbol, price }),
    };
    const other = quoteType({ name: 'other', table: 'plain', ...plain });
    const later = quoteType({ name: 'later', table: 'later', ...plain });
    const scene = await RefreshScene.open([quoteType(), other]);
    await scene.db.query('drop table plain');
    scene.quote('A', 1);
    const dataTypes = [...scene.dataTypes, { ...scene.dataTypes[1]!, name: 'later', table: 'later', fetcher: 'later' }];
    await startWorker(scene, { dataTypes });
    await scene.enqueue('quote', ['A']);
    await until(async () => (await scene.value('select count(*)::int from quote')) === 1);
    await scene.db.query('create table later (symbol text primary key, price numeric, fetched_at timestamptz)');
    await scene.db.query(
      `insert into pgfresh.data_type_registry (data_type, source, table_name, key_columns, timestamp_column, ttl) values ('${later.name}', 'market', 'later', '{symbol}', 'fetched_at', '1 minute')`,
    );
    await scene.enqueue('later', ['A']);
    await until(async () => (await scene.value('select count(*)::int from later')) === 1);
  });
});
