import { beforeAll, describe, expect, test } from 'vitest';
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
      `delete from pgfresh.job; delete from pgfresh.pairs; update pgfresh.sources set paused_until = null, failure_streak = 0, breaker_opened_at = null, recent_retries = '{}'`,
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
    }
  });
});
