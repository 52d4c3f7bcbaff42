import { describe, expect, it } from 'vitest';
import { Commits, lockPatienceMs } from '../../src/refresh/index.ts';
import { shiftClock } from '../harness/clock.ts';
import { openSession } from '../harness/session.ts';
import { quoteType, RefreshScene } from '../refresh/scene.ts';
import { drained, startWorker, until } from '../worker/scene.ts';

const keysOf = (count: number) => Array.from({ length: count }, (_, n) => `K${n}`);
const endedOf = (scene: RefreshScene) => scene.seen.filter((event) => event.type === 'refresh.ended');
const booked = (scene: RefreshScene) => scene.value<number>(`select sum(calls)::int from pgfresh_engine.usage`);

/** Lets the only job run again and again, however long it would wait, until it has ended as often as this. */
async function rounds(scene: RefreshScene, clock: Awaited<ReturnType<typeof shiftClock>>, count: number) {
  for (let round = 1; round <= count; round++) {
    await until(() => endedOf(scene).length >= round);
    await clock.advance('2 days');
  }
}

describe('contract 32: every call is booked, and none is repeated without a bound', () => {
  it('contract 32: answers that cannot be stored are fetched once, and so are those beside them', async () => {
    const scene = await RefreshScene.open([
      quoteType({
        rows: (answer) => {
          const { symbol, price, at, name } = answer as Record<string, string>;
          return { symbol, price, quoted_at: at, ...(symbol === 'K5' ? { ['no\0column']: 1 } : { name }) };
        },
      }),
    ]);
    const keys = keysOf(20);
    for (const key of keys) scene.quote(key, 1, undefined, { name: key === 'K3' ? 'a\0b' : 'half \ud83d' });
    await scene.enqueue('quote', keys);
    const worker = await startWorker(scene);
    await drained(scene);
    expect(scene.provider.asked.toSorted()).toEqual(keys.map((key) => `/quote/${key}`).toSorted());
    expect(await booked(scene)).toBe(20);
    expect(endedOf(scene).filter(({ outcome }) => outcome === 'fresh')).toHaveLength(19);
    await worker.stop();
  });

  it('contract 32: a 429 without a hint is tried a bounded number of times, ever more rarely', async () => {
    const scene = await RefreshScene.open();
    const clock = await shiftClock(scene.db);
    scene.provider.answers.set('/quote/A', (_request, response) => response.writeHead(429).end());
    await scene.enqueue('quote', ['A']);
    const worker = await startWorker(scene);
    await rounds(scene, clock, 9);
    expect(await scene.value(`select count(*)::int from pgfresh_engine.job`)).toBe(0);
    expect(scene.provider.asked).toHaveLength(9);
    expect(await booked(scene)).toBe(9);
    expect(await scene.value(`select unhinted_holds::int from pgfresh.sources`)).toBe(9);
    await worker.stop();
  });

  it('contract 32: a job whose calls do not fit its rate is given up', async () => {
    const scene = await RefreshScene.open([quoteType({ request: (key) => ({ url: `/old/${key}` }) })]);
    const clock = await shiftClock(scene.db);
    await scene.db.query(`update pgfresh.sources set rate_limit_per_minute = 1`);
    await clock.advance('2 minutes');
    scene.provider.answers.set('/old/A', (_request, response) =>
      response.writeHead(307, { location: '/quote/A' }).end(),
    );
    await scene.enqueue('quote', ['A']);
    const worker = await startWorker(scene);
    await rounds(scene, clock, 9);
    expect(await scene.value(`select count(*)::int from pgfresh_engine.job`)).toBe(0);
    expect(scene.provider.asked).toHaveLength(9);
    expect(await booked(scene)).toBe(9);
    expect(await scene.value(`select paused_by from pgfresh.sources`)).toBe(null);
    await worker.stop();
  });

  it('contract 32: a locked table costs one call per key', async () => {
    const scene = await RefreshScene.open();
    const keys = keysOf(5);
    for (const key of keys) scene.quote(key, 1);
    const other = await openSession(scene.url);
    await other.query('begin; lock table quote in access exclusive mode');
    await scene.enqueue('quote', keys);
    const worker = await startWorker(scene);
    await until(() => scene.seen.some(({ type }) => type === 'worker.locked'));
    await other.query('rollback');
    await drained(scene);
    expect(scene.provider.asked).toHaveLength(5);
    expect(await booked(scene)).toBe(5);
    await worker.stop();
  });

  it('contract 32: an end that cannot be recorded is booked, and costs no other job', async () => {
    const scene = await RefreshScene.open();
    const keys = keysOf(20);
    for (const key of keys) scene.provider.json(`/quote/${key}`, {}, 500);
    const type = await scene.type();
    await scene.enqueue('quote', keys);
    const { signal } = new AbortController();
    const refresher = scene.refresher();
    const jobs = await scene.claim(type.id);
    const ready = await Promise.all(
      jobs.map(async (job) => ({ job, fetched: await refresher.fetch(type, job, signal) })),
    );
    // A stranger's open transaction has one of the jobs.
    const other = await openSession(scene.url);
    await other.query('begin');
    await other.query(`select from pgfresh_engine.job where key = 'K7' for update`);
    const commits = new Commits(scene.db, scene.queue);
    const { ended, stuck } = await commits.end(type, ready, signal);
    expect([ended.length, stuck.map(({ job }) => job.key)]).toEqual([19, ['K7']]);
    const late = stuck.map((one) => ({ ...one, stuckSince: one.stuckSince! - lockPatienceMs - 1 }));
    expect((await commits.end(type, late, signal)).problems).toHaveLength(1);
    await other.query('rollback');
    expect(await booked(scene)).toBe(20);
    expect(scene.provider.asked).toHaveLength(20);
  });
});
