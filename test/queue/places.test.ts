import { once } from 'node:events';
import pg from 'pg';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { freezeClock } from '../harness/clock.ts';
import { QueueScene } from './scene.ts';
import { resumeSpending, stopSpending } from '../../src/sources/index.ts';

const scene = await QueueScene.open({ poolSize: 8 });
const { db, queue } = scene;
const clock = await freezeClock(db);
const keys = (count: number) => Array.from({ length: count }, (_, n) => `k${n}`);
const health = (source: string) =>
  scene.value<string>('select state from pgfresh.source_health where source = $1::text', [source]);

beforeEach(async () => {
  await db.query(
    'truncate pgfresh_engine.job, pgfresh_engine.pairs, pgfresh_engine.claim, pgfresh_engine.source_place, pgfresh.spending_stop',
  );
  await db.query(`delete from pgfresh.data_type_registry where data_type <> 'quote'`);
  await db.query(`delete from pgfresh.sources where name <> 'market'`);
  // What a source has called would stay called.
  await db.query('truncate pgfresh_engine.source_past');
  await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
});

describe('a source of which three jobs may run at once', () => {
  beforeEach(async () => {
    await scene.source('narrow', { concurrency: 3 });
    await scene.type('page', 'narrow');
    await queue.enqueueMany(db, 'page', keys(20));
  });

  it('has three, however many ask at once', async () => {
    const claims = await Promise.all(Array.from({ length: 8 }, () => scene.claim({ limit: 2 })));
    const more = claims.flat();
    for (let turn = 0; turn < 4; turn++) more.push(...(await scene.claim({ limit: 2 })));
    expect(more).toHaveLength(3);
  });

  it('has room again for each that ended, in whatever way', async () => {
    const [first, second, third] = await scene.claim();
    await scene.complete([first!]);
    expect(await scene.claim()).toHaveLength(1);
    await queue.putBack(db, [{ ...second!, bytes: 0 }]);
    expect(await scene.claim()).toHaveLength(1);
    await db.query('select pgfresh.cancel_queue_jobs(array[$1::bigint])', [third!.id]);
    expect(await scene.claim()).toHaveLength(1);
    expect(await scene.claim()).toEqual([]);
  });

  it('keeps no places of jobs that are gone', async () => {
    for (let turn = 0; turn < 5; turn++) await scene.complete(await scene.claim());
    expect(await scene.value('select count(*)::int from pgfresh_engine.source_place')).toBeLessThanOrEqual(3);
  });
});

describe('a source that wants one job a key', () => {
  beforeEach(async () => {
    await scene.source('careful', { oneKeyAtATime: true });
    await scene.type('page', 'careful');
    await scene.type('note', 'careful');
    for (const type of ['page', 'note']) await queue.enqueueMany(db, type, ['A', 'B', 'C']);
  });

  it('gets one of each at a time, of whatever types', async () => {
    const jobs = await scene.claim();
    expect(jobs.map((job) => job.key).toSorted()).toEqual(['A', 'B', 'C']);
    expect(await scene.claim()).toEqual([]);
    await scene.complete(jobs.filter((job) => job.key === 'B'));
    expect((await scene.claim()).map((job) => job.key)).toEqual(['B']);
  });

  it('however many ask at once', async () => {
    const claims = await Promise.all(Array.from({ length: 8 }, () => scene.claim({ limit: 1 })));
    const more = claims.flat();
    for (let turn = 0; turn < 4; turn++) more.push(...(await scene.claim({ limit: 1 })));
    expect(more.map((job) => job.key).toSorted()).toEqual(['A', 'B', 'C']);
  });
});

it('may have all limits at once, and a claim keeps to each', async () => {
  await scene.source('strict', { concurrency: 4, rate: 3, oneKeyAtATime: true, quotaBytes: 1_000, window: '1 day' });
  await scene.type('page', 'strict', 100);
  await scene.type('note', 'strict', 100);
  for (const type of ['page', 'note']) await queue.enqueueMany(db, type, ['A', 'B']);
  expect((await scene.claim()).map((job) => job.key).toSorted()).toEqual(['A', 'B']);
});

describe('a provider that asks to be left alone', () => {
  const hold = (until: string) =>
    db.query(
      `select pgfresh_engine.hold_source((select id from pgfresh.sources where name = 'polite'), pgfresh.clock() + $1::interval, 'Retry-After: 30')`,
      [until],
    );

  beforeEach(async () => {
    await scene.source('polite');
    await scene.type('page', 'polite');
    await queue.enqueueMany(db, 'page', keys(5));
    await queue.enqueue(db, 'quote', 'other');
  });

  it('is left alone by everybody, and others go on', async () => {
    await hold('30 seconds');
    expect(await health('polite')).toBe('held');
    expect((await scene.claim()).map((job) => job.key)).toEqual(['other']);
    await clock.advance('29 seconds');
    expect(await scene.claim()).toEqual([]);
    await clock.advance('1 second');
    expect(await scene.claim()).toHaveLength(5);
  });

  it('is not called earlier because it asks for less later', async () => {
    await hold('60 seconds');
    await hold('1 second');
    await hold('-1 hour');
    await clock.advance('59 seconds');
    expect(await scene.claim({ limit: 5 })).toMatchObject([{ key: 'other' }]);
  });

  it('is asked again after a day, whatever it says', async () => {
    await hold('1000 years');
    await clock.advance('1 day');
    expect(await scene.claim()).toHaveLength(6);
  });
});

describe('a source that is paused', () => {
  it('is not called until then, or until it is resumed', async () => {
    await queue.enqueueMany(db, 'quote', ['A']);
    await db.query(`select pgfresh.pause_source('market', pgfresh.clock() + interval '1 hour', 'maintenance')`);
    expect(await health('market')).toBe('paused');
    expect(await scene.claim()).toEqual([]);
    await clock.advance('1 hour');
    expect(await scene.claim()).toHaveLength(1);
    await db.query(`select pgfresh.pause_source('market')`);
    await queue.enqueueMany(db, 'quote', ['B']);
    await clock.advance('100 days');
    expect(await scene.claim()).toEqual([]);
    expect(await scene.value(`pgfresh.resume_source('market')`)).toBe(true);
    expect(await scene.claim()).toHaveLength(1);
  });
});

it('stops everything and lets it go on', async () => {
  await scene.source('limited', { rate: 10, quotaBytes: 1_000_000 });
  await scene.type('page', 'limited');
  for (const type of ['quote', 'page']) await queue.enqueueMany(db, type, ['A', 'B']);
  expect(await stopSpending(scene.db, 'the bill')).toBe(true);
  expect(await stopSpending(scene.db, 'again')).toBe(false);
  expect(await health('market')).toBe('stopped');
  expect(await scene.claim()).toEqual([]);
  expect(await scene.value('pgfresh.get_queue_batch()')).toEqual([]);
  const worker = new pg.Client(scene.url);
  onTestFinished(() => worker.end());
  await worker.connect();
  await worker.query('listen pgfresh_job');
  await worker.query('update pgfresh_engine.process set idle = true');
  const woken = once(worker, 'notification');
  expect(await resumeSpending(scene.db)).toBe(true);
  await woken;
  expect(await resumeSpending(scene.db)).toBe(false);
  expect(await scene.claim()).toHaveLength(4);
});
