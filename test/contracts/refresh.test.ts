import { beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { defineDataType } from '../../src/index.ts';
import { outcomes, type OutcomeName } from '../../src/refresh/index.ts';
import { seededRandom } from '../harness/random.ts';
import { lies } from '../refresh/lies.ts';
import { quoteType, RefreshScene } from '../refresh/scene.ts';

describe('an answer that lies', () => {
  let scene: RefreshScene;
  beforeAll(async () => {
    scene = await RefreshScene.open([quoteType()], [], '1s');
  });

  test.for(lies)('contract 5: $kind is $outcome, and the old row stays', async ({ outcome, answer }) => {
    await scene.db.query(
      `delete from quote; insert into quote values ('AAPL', 100, 'nobody', '2026-01-05T12:00:00Z', now() - interval '1 hour')`,
    );
    await scene.db.query(
      `delete from pgfresh_engine.job; delete from pgfresh_engine.pairs; update pgfresh.sources set paused_until = null, failure_streak = 0, breaker_opened_at = null, recent_retries = '{}'`,
    );
    const before = await scene.rows('quote', '*');
    scene.provider.answers.set('/quote/AAPL', answer);
    const [ended] = await scene.refresh(['AAPL']);
    expect([ended!.outcome, ended!.error]).toEqual([
      outcome,
      outcomes[outcome].verdict === 'complete' ? undefined : expect.any(String),
    ]);
    expect(await scene.rows('quote', '*')).toEqual(before);
  });

  test('every outcome of an answer has at least two kinds, where there are two', () => {
    const counts = Map.groupBy(lies, ({ outcome }) => outcome);
    const single: OutcomeName[] = ['empty'];
    expect([...counts].filter(([, kinds]) => kinds.length < 2).map(([outcome]) => outcome)).toEqual(single);
    expect(lies.length).toBeGreaterThanOrEqual(40);
    expect(new Set(lies.map(({ kind }) => kind)).size).toBe(lies.length);
  });
});

test('contract 5: that there is nothing is believed only of the key that was asked for', async () => {
  const type = defineDataType({
    name: 'plain',
    source: 'market',
    table: 'plain',
    key: 'symbol',
    timestamp: 'fetched_at',
    ttl: '1m',
    schema: z.object({ symbol: z.string(), prices: z.array(z.number()) }),
    request: (key) => ({ url: `/plain/${key}` }),
    rows: ({ symbol, prices }) => prices.map((price) => ({ symbol, price })),
  });
  const scene = await RefreshScene.open([type]);
  await scene.db.query(`insert into plain values ('AAPL', 100, now() - interval '1 hour')`);
  scene.provider.json('/plain/AAPL', { symbol: 'MSFT', prices: [] });
  expect(await scene.outcome('AAPL', 'plain')).toBe('wrong_key');
  expect(await scene.rows('plain')).toEqual([{ symbol: 'AAPL', price: 100 }]);
  await scene.db.query(`select pgfresh.cancel_queue_jobs(p_data_type => 'plain')`);
  scene.provider.json('/plain/AAPL', { symbol: 'AAPL', prices: [] });
  expect(await scene.outcome('AAPL', 'plain')).toBe('empty');
});

describe('writers in any order', () => {
  const writers = Array.from({ length: 8 }, (_, n) => `writer${n}`);

  test('contract 14: the newest source time wins, and of two contents of one time the first', async () => {
    const types = writers.map((name) =>
      quoteType({ name, fetcher: name, request: (key) => ({ url: `/${name}/${key}` }) }),
    );
    const scene = await RefreshScene.open(types);
    const random = seededRandom(14);
    for (let round = 0; round < 25; round++) {
      const key = `R${round}`;
      // Four times, each told by two writers with different prices; and somebody who writes the table by himself.
      const tales = writers.map((name, n) => ({ name, price: n + 1, at: `2026-01-05T12:00:0${n >> 1}Z` }));
      for (const { name, price, at } of tales) scene.provider.json(`/${name}/${key}`, { symbol: key, price, at });
      const stranger = scene.db.query(
        `insert into quote as q (symbol, price, quoted_at) values ($1, 50, '2026-01-05T12:00:02.5Z')
         on conflict (symbol) do update set price = 50, quoted_at = excluded.quoted_at where q.quoted_at < excluded.quoted_at`,
        [key],
      );
      const order = tales.map((tale) => ({ tale, place: random() })).toSorted((a, b) => a.place - b.place);
      const ended = await Promise.all(
        order.map(async ({ tale }) => ({ ...tale, outcome: await scene.outcome(key, tale.name) })),
      );
      await stranger;
      const [row] = await scene.db.query<{ price: number; at: string }>(
        `select price::float8 as price, to_char(quoted_at at time zone 'utc', 'HH24:MI:SS') as at from quote where symbol = $1`,
        [key],
      );
      expect(row!.at).toBe('12:00:03');
      const winners = ended.filter(({ outcome, at }) => outcome === 'fresh' && at.endsWith('03Z'));
      expect(winners.map(({ price }) => price)).toEqual([row!.price]);
      // Each told something else, so none of them has told what was there already.
      const others = new Set(ended.map(({ outcome }) => outcome));
      expect([...others].toSorted()).toEqual(others.size === 1 ? ['fresh'] : ['fresh', 'older_source']);
    }
  });

  test('contract 14: of rows that are replaced together, those of the newest answer are left, and nothing of another', async () => {
    const types = writers.map((name) => setType(name));
    const scene = await RefreshScene.open(types);
    const random = seededRandom(41);
    // A key is written for the first time, and then over what is there.
    for (let round = 0; round < 30; round++) {
      const key = `S${round >> 1}`;
      const tales = writers.map((name, n) => ({ name, revenue: n + 1, at: `2026-01-05T12:${round + 10}:0${n >> 1}Z` }));
      for (const { name, ...tale } of tales) {
        // One row that all have, as old as in all of them; and one that only this writer has.
        const statements = [
          { period: '2020-01-01', quoted_at: '2020-02-01T00:00:00Z', revenue: tale.revenue },
          { period: `2025-0${tale.revenue}-01`, quoted_at: tale.at, revenue: tale.revenue },
        ];
        scene.provider.json(`/${name}/${key}`, { symbol: key, statements });
      }
      const order = tales.map((tale) => ({ tale, place: random() })).toSorted((a, b) => a.place - b.place);
      const ended = await Promise.all(
        order.map(async ({ tale }) => ({ ...tale, outcome: await scene.outcome(key, tale.name) })),
      );
      const rows = await scene.db.query<{ period: string; revenue: number }>(
        `select period::text, revenue::float8 as revenue from statement where symbol = $1 order by period`,
        [key],
      );
      const winners = ended.filter(({ outcome, at }) => outcome === 'fresh' && at.endsWith('03Z'));
      expect({ round, rows }).toEqual({
        round,
        rows: winners.flatMap(({ revenue }) => [
          { period: '2020-01-01', revenue },
          { period: `2025-0${revenue}-01`, revenue },
        ]),
      });
      expect(rows).toHaveLength(2);
      expect(ended.every(({ outcome }) => outcome === 'fresh' || outcome === 'older_source')).toBe(true);
    }
  });
});

/** Statements of a symbol, all of them replaced by those of an answer. */
function setType(name: string) {
  return defineDataType({
    name,
    source: 'market',
    table: 'statement',
    key: 'symbol',
    timestamp: 'fetched_at',
    ttl: '1m',
    write: 'replace',
    sourceTimestamp: 'quoted_at',
    schema: z.object({
      symbol: z.string(),
      statements: z.array(z.object({ period: z.string(), quoted_at: z.string(), revenue: z.number() })),
    }),
    request: (key) => ({ url: `/${name}/${key}` }),
    rows: ({ symbol, statements }) => statements.map((one) => ({ symbol, exchange: 'X', ...one })),
  });
}
