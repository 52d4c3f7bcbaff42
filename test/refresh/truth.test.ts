import { expect, test } from 'vitest';
import { explainPair } from '../../src/planner/index.ts';
import { shiftClock } from '../harness/clock.ts';
import { RefreshScene, quoteType } from './scene.ts';

/** A viewed pair (quote, A), fetched by a worker's own code, with a clock that the test moves ahead. */
async function viewedQuote(changes: Parameters<typeof quoteType>[0] = {}) {
  const scene = await RefreshScene.open([quoteType(changes)]);
  const clock = await shiftClock(scene.db);
  await scene.db.query(`select pgfresh.upsert_active_subscription('ada', 'A', 'quote')`);
  const advance = async (interval: string) => {
    await clock.advance(interval);
    await scene.db.query('update pgfresh_engine.subscription set last_seen_at = pgfresh.clock()');
  };
  const sweep = () => scene.value<{ queued: number }>('select pgfresh.check_and_queue_stale_data()');
  const tick = () => scene.value<{ queued?: number }>('select pgfresh_engine.plan_due_pairs()');
  const explain = () => explainPair(scene.db, 'quote', 'A');
  return { scene, clock, advance, sweep, tick, explain };
}

const secondsAgo = async (clock: { now: () => Promise<number> }, seconds: number) =>
  new Date((await clock.now()) - seconds * 1_000).toISOString();

test('truth 1: a worker says how old the row is that it has written, so nobody has to look', async () => {
  const { scene, tick, explain } = await viewedQuote();
  scene.quote('A', 1);
  expect(await scene.outcome('A')).toBe('fresh');
  expect(
    await scene.db.query('select p.row_at = q.fetched_at as known, p.seen from pgfresh_engine.pairs as p, quote as q'),
  ).toEqual([{ known: true, seen: true }]);
  expect(await tick()).not.toHaveProperty('checked');
  expect(await explain()).toMatchObject({ state: 'fresh', source_at: '2026-01-05T12:00:00+00:00' });
});

test.for(['unchanged', '304'])('truth 1: an answer that confirms the row makes it fresh for a TTL: %s', async (how) => {
  const { scene, advance, sweep, tick, explain } = await viewedQuote();
  scene.quote('A', 1);
  await scene.outcome('A');
  const [before] = await scene.rows('quote', 'symbol, fetched_at');
  await advance('50 seconds');
  if (how === '304') scene.provider.answers.set('/quote/A', (_request, response) => void response.writeHead(304).end());
  expect(await scene.outcome('A')).toBe('unchanged');
  expect(await scene.rows('quote', 'symbol, fetched_at')).toEqual([before]);
  await advance('50 seconds');
  await tick();
  expect(await sweep()).toMatchObject({ queued: 0 });
  expect(await explain()).toMatchObject({ state: 'fresh', activity: 'idle' });
  await scene.db.query('delete from quote');
  expect(await sweep()).toMatchObject({ queued: 1 });
  expect(await explain()).toMatchObject({ state: 'missing' });
});

test('truth 1: a source that confirms a row which is not there is asked ever less, and explain says so', async () => {
  const { scene, advance, tick, explain } = await viewedQuote({ ttl: '1h' });
  scene.provider.answers.set('/quote/A', (_request, response) => void response.writeHead(304).end());
  for (let second = 0; second < 120; second++) {
    await tick();
    if ((await scene.value<number>('select count(*)::int from pgfresh_engine.job')) > 0) await scene.refresh(['A']);
    await advance('1 second');
  }
  expect(scene.provider.asked.length).toBeLessThanOrEqual(6);
  expect(await explain()).toMatchObject({
    state: 'missing',
    words: expect.stringContaining('The source answers that nothing has changed, but there is no row'),
  });
});

test.for([
  ['deletes', 'after', 'delete from quote; return null', 'missing', ['row_lost']],
  ['swallows', 'before', 'return null', 'missing', []],
  ['sets back', 'before', `new.fetched_at := '2020-01-01'; return new`, 'stale', ['stale_when_written']],
] as const)(
  'truth 1: a trigger that %s what a worker writes does not spend the budget',
  async ([, when, body, state, codes]) => {
    const { scene, advance, sweep, tick, explain } = await viewedQuote({ ttl: '1h' });
    await scene.db.query(
      `create function harm() returns trigger language plpgsql as $$ begin ${body}; end $$;
     create trigger harm ${when} insert or update on quote for each row execute function harm()`,
    );
    scene.quote('A', 1);
    for (let second = 0; second < 120; second++) {
      await tick();
      if (second % 10 === 0) await sweep();
      if ((await scene.value<number>('select count(*)::int from pgfresh_engine.job')) > 0) await scene.refresh(['A']);
      await advance('1 second');
    }
    expect(scene.provider.asked.length).toBeLessThanOrEqual(6);
    expect(await explain()).toMatchObject({ state, activity: 'waiting', reason: 'retry' });
    expect(await scene.value('array(select code from pgfresh.warnings)')).toEqual(codes);
  },
);

test('truth 2: a provider with a stuck cache: the pair goes stale at its TTL and says how old the source is', async () => {
  const { scene, clock, advance, tick, explain } = await viewedQuote({ ttl: '20s' });
  scene.quote('A', 2, await secondsAgo(clock, 0));
  expect(await scene.outcome('A')).toBe('fresh');
  scene.quote('A', 1, await secondsAgo(clock, 20));
  let calls = 0;
  for (let second = 5; second <= 60; second += 5) {
    await advance('5 seconds');
    await tick();
    if ((await scene.value<number>('select count(*)::int from pgfresh_engine.job')) > 0) {
      expect(await scene.outcome('A')).toBe('older_source');
      calls++;
    }
  }
  expect(calls).toBe(3);
  const explanation = await explain();
  expect(explanation).toMatchObject({ state: 'older_source', activity: 'waiting', reason: 'retry' });
  expect(explanation.words).toMatch(/: its own data is 8[0-2] s old; it is asked again in (19|20) s\.$/);
  expect(explanation.age_seconds).toBeGreaterThan(59);
  const overview = await scene.value<{ freshness: object }>('select pgfresh_engine.overview()');
  expect(overview.freshness).toMatchObject({ older_source: 1, fresh: 0, share: 0 });
});

test('truth 2: data that is older at its source than its type allows is not fresh, however new the row is', async () => {
  const { scene, clock, explain } = await viewedQuote({ ttl: '1h', maxSourceAge: '1m' });
  scene.quote('A', 1, await secondsAgo(clock, 80));
  expect(await scene.outcome('A')).toBe('fresh');
  expect(await explain()).toMatchObject({ state: 'stale' });
  scene.quote('A', 2, await secondsAgo(clock, 5));
  expect(await scene.outcome('A')).toBe('fresh');
  expect(await explain()).toMatchObject({ state: 'fresh' });
});
