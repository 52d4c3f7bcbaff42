import { describe, expect, it } from 'vitest';
import type { Source } from '../../src/config/index.ts';
import { shiftClock } from '../harness/clock.ts';
import { quoteType, RefreshScene } from '../refresh/scene.ts';
import { startWorker, until } from './scene.ts';

type TokenContext = Parameters<NonNullable<Source['token']>>[0];
const keys = ['A', 'B', 'C', 'D'];
const endedOf = (scene: RefreshScene) => scene.seen.filter((event) => event.type === 'refresh.ended');

/** A source with a rate of four calls a minute, whose every job is sent elsewhere, so that it takes two. */
async function open() {
  const scene = await RefreshScene.open([quoteType({ request: (key) => ({ url: `/old/${key}` }) })]);
  const clock = await shiftClock(scene.db);
  await scene.db.query(`update pgfresh.sources set rate_limit_per_minute = 4`);
  await clock.advance('2 minutes');
  for (const key of keys) {
    scene.quote(key, 1);
    scene.provider.answers.set(`/old/${key}`, (_request, response) =>
      response.writeHead(307, { location: `/quote/${key}` }).end(),
    );
  }
  return { scene, clock };
}

describe('sound 2: a job that takes more calls than one', () => {
  it('gets all of them before its first, so that a small rate makes progress', async () => {
    const { scene, clock } = await open();
    const worker = await startWorker(scene);
    await scene.enqueue('quote', keys);
    // Nobody knows yet that each takes two.
    await until(() => endedOf(scene).length === 4);
    expect(endedOf(scene).map(({ outcome }) => outcome)).toEqual(Array(4).fill('no_slot'));
    expect(await scene.value(`select paused_by from pgfresh.sources`)).toBe(null);
    for (const count of [6, 8]) {
      await clock.advance('2 minutes');
      await until(() => endedOf(scene).length === count);
    }
    expect(endedOf(scene).map(({ outcome }) => outcome)).toEqual([
      ...Array<string>(4).fill('no_slot'),
      ...Array<string>(4).fill('fresh'),
    ]);
    expect(scene.provider.asked).toHaveLength(12);
    expect(await scene.value(`select sum(calls)::int from pgfresh_engine.usage`)).toBe(12);
    expect(await scene.value(`select max(retries)::int from pgfresh_engine.history_succeeded`)).toBe(0);

    // From now on it is known.
    await clock.advance('2 minutes');
    await scene.enqueue('quote', keys);
    await until(() => endedOf(scene).length === 10);
    await clock.advance('2 minutes');
    await until(() => endedOf(scene).length === 12);
    expect(endedOf(scene).filter(({ outcome }) => outcome === 'no_slot')).toHaveLength(4);
    expect(scene.provider.asked).toHaveLength(20);
    await worker.stop();
  });

  it('is the one that fetches a token, and the others take one', async () => {
    const scene = await RefreshScene.open();
    const clock = await shiftClock(scene.db);
    await scene.db.query(`update pgfresh.sources set rate_limit_per_minute = 2`);
    await clock.advance('2 minutes');
    for (const key of keys) scene.quote(key, 1);
    scene.provider.json('/token', { token: 'a token' });
    const sources = scene.config.sources.map((source) => ({
      ...source,
      token: async ({ call }: TokenContext) => (await call({ url: '/token' })).json() as { token: string },
    }));
    const worker = await startWorker(scene, { sources });
    await scene.enqueue('quote', ['A', 'B']);
    await until(() => endedOf(scene).length === 2);
    for (const count of [3, 4]) {
      await clock.advance('2 minutes');
      await until(() => endedOf(scene).length === count);
    }
    expect(endedOf(scene).map(({ outcome }) => outcome)).toEqual(['no_slot', 'no_slot', 'fresh', 'fresh']);
    expect(scene.provider.asked.toSorted()).toEqual(['/quote/A', '/quote/B', '/token']);
    expect(await scene.value(`select sum(calls)::int from pgfresh_engine.usage`)).toBe(3);
    expect(await scene.value(`select paused_by from pgfresh.sources`)).toBe(null);
    await worker.stop();
  });

  it('whose rate is too small for it fails in the end, and says why', async () => {
    const { scene, clock } = await open();
    await scene.db.query(`update pgfresh.sources set rate_limit_per_minute = 1`);
    const worker = await startWorker(scene);
    await scene.enqueue('quote', ['A']);
    for (let round = 1; round <= 9; round++) {
      await until(() => endedOf(scene).length === round);
      await clock.advance('1 day');
    }
    expect(await scene.value(`select error_message from pgfresh.failed_jobs`)).toContain('it takes 2 calls');
    expect(scene.provider.asked).toHaveLength(9);
    expect(await scene.value(`select sum(calls)::int from pgfresh_engine.usage`)).toBe(9);
    await worker.stop();
  });
});
