import { beforeEach, describe, expect, it } from 'vitest';
import { freezeClock } from '../harness/clock.ts';
import { openSession } from '../harness/session.ts';
import { blocked } from '../harness/blocked.ts';
import { QueueScene } from './scene.ts';

let scene: QueueScene;
let clock: Awaited<ReturnType<typeof freezeClock>>;
beforeEach(async () => {
  scene = await QueueScene.open();
  clock = await freezeClock(scene.db);
  await scene.db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
});

describe('sound 2: what is put back without counting a retry', () => {
  type Way = (job: { id: number; attempt: number; request: string }) => Promise<unknown>;
  const ways: Record<string, Way> = {
    'put_back_jobs, whatever its outcome': (job) =>
      scene.queue.putBack(scene.db, [{ ...job, bytes: 0, calls: 1 }], { outcome: 'rate_limited' }),
    reset_job_immediate: ({ id }) => scene.db.query('select pgfresh.reset_job_immediate($1::bigint)', [id]),
    release_claim: ({ request }) =>
      scene.db.query('select pgfresh_engine.release_claim(max(id), $1::uuid) from pgfresh_engine.process', [request]),
    'an API key that is refused': async (job) => {
      await scene.queue.fail(scene.db, [{ ...job, bytes: 0, calls: 1 }], { outcome: 'unauthorized' });
      await scene.db.query(`select pgfresh.resume_source('market')`);
    },
  };

  it.each(Object.entries(ways))('counts from the sixth time on: %s', async (_, putBack) => {
    await scene.queue.enqueue(scene.db, 'quote', 'A', { priority: 1 });
    const statuses: string[] = [];
    for (let attempt = 1; attempt <= 9; attempt++) {
      const job = await scene.claimOne();
      await putBack(job);
      const { status } = (await scene.job(job.id)) as { status: string };
      statuses.push(status);
      await clock.advance('1 day');
      await scene.db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
    }
    expect(statuses).toEqual([...Array<string>(5).fill('pending'), ...Array<string>(3).fill('retryable'), 'failed']);
    expect(await scene.value('(select count(*)::int from pgfresh_engine.job)')).toBe(0);
  });
});

describe('sound 2: a provider that refuses calls and does not say for how long', () => {
  const hold = () =>
    scene.value<number>(
      `extract(epoch from pgfresh_engine.hold_source(1, null, 'HTTP 429') - pgfresh.clock())::float8`,
    );

  it('is left alone for twice as long each time, up to an hour, with a warning', async () => {
    const waits: number[] = [];
    for (let time = 0; time < 12; time++) {
      waits.push(await hold());
      // The others that were under way say nothing new.
      expect(await hold()).toBe(waits.at(-1));
      await clock.advance('1 hour');
    }
    for (const [time, wait] of waits.entries()) {
      const longest = Math.min(3_600, 10 * 2 ** time);
      expect([time, wait <= longest && wait >= longest * 0.75]).toEqual([time, true]);
    }
    expect(await scene.db.query(`select code, subject, count from pgfresh.warnings`)).toEqual([
      { code: 'limit_without_hint', subject: 'market', count: 12 },
    ]);
  });

  it('starts anew when a call has succeeded', async () => {
    for (let time = 0; time < 5; time++) {
      await hold();
      await clock.advance('1 hour');
    }
    await scene.queue.enqueue(scene.db, 'quote', 'A');
    await scene.db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
    await scene.complete([await scene.claimOne()], 10);
    expect(await hold()).toBeLessThanOrEqual(10);
  });
});

describe('sound 2: an end of two kinds', () => {
  it('does not deadlock with a counted failure of the same source with a quota', async () => {
    await scene.source('metered', { quotaBytes: 1_000_000 });
    await scene.type('page', 'metered', 100);
    await scene.queue.enqueueMany(scene.db, 'page', ['A', 'B', 'C']);
    const [a, b, c] = await scene.claim();
    const end = (job: typeof a) => ({ ...job!, bytes: 1, calls: 1 });
    // Another end has the row of the source, and will want its ledger.
    const other = await openSession(scene.url);
    await other.query('begin');
    await other.query(`select from pgfresh.sources where name = 'metered' for no key update`);
    const ending = scene.queue.fail(scene.db, [
      { ...end(a), outcome: 'not_found', permanent: true },
      { ...end(b), outcome: 'http_5xx', counts: true },
    ]);
    await blocked(scene.db);
    const failing = `select pgfresh_engine.fail_jobs(jsonb_build_array(jsonb_build_object('id', $1::bigint, 'attempt', $2::int, 'counts', true)))`;
    await other.query(failing, [c!.id, c!.attempt]);
    await other.query('commit');
    expect(await ending).toHaveLength(2);
    expect(await scene.value('(select reserved::int from pgfresh_engine.source_state where reserved > 0)')).toBe(null);
  });

  it('takes the rows of two sources in their order, whatever was wrong with each', async () => {
    const low = await scene.source('low');
    const high = await scene.source('high');
    await scene.type('one', 'low');
    await scene.type('two', 'high');
    for (const type of ['one', 'two']) await scene.queue.enqueueMany(scene.db, type, ['A']);
    const claimed = await scene.claim();
    const endOf = (source: number) => ({ ...claimed.find((job) => job.source === source)!, bytes: 1, calls: 1 });
    // Whoever writes both, as a change of the configuration does, takes the first one first.
    const other = await openSession(scene.url);
    await other.query('begin');
    const lock = 'select from pgfresh.sources where id = $1::int for no key update';
    await other.query(lock, [low]);
    const ending = scene.queue.fail(scene.db, [
      { ...endOf(low), outcome: 'http_5xx', counts: true },
      { ...endOf(high), outcome: 'schema', permanent: true },
    ]);
    await blocked(scene.db);
    await other.query(lock, [high]);
    await other.query('commit');
    expect(await ending).toHaveLength(2);
  });
});
