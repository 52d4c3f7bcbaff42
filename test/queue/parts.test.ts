import { beforeEach, describe, expect, it } from 'vitest';
import type { ClaimedJob } from '../../src/queue/index.ts';
import { freezeClock } from '../harness/clock.ts';
import { QueueScene } from './scene.ts';

const scene = await QueueScene.open({ poolSize: 8 });
const { db, queue } = scene;
const clock = await freezeClock(db);
const keys = (count: number) => Array.from({ length: count }, (_, n) => `k${String(n).padStart(2, '0')}`);

beforeEach(async () => {
  await db.query(
    'truncate pgfresh_engine.job, pgfresh_engine.pairs, pgfresh_engine.claim, pgfresh.warnings, pgfresh_engine.breaker',
  );
  await db.query(`delete from pgfresh.data_type_registry where data_type <> 'quote'`);
  await db.query(`delete from pgfresh.sources where name <> 'market'`);
  // What a source has called would stay called.
  await db.query('truncate pgfresh_engine.source_past');
  await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
});

const endOf = ({ id, attempt, request }: ClaimedJob) => ({ id, attempt, request, bytes: 10 });
const succeed = (jobs: readonly ClaimedJob[], outcome = 'fresh') =>
  queue.complete(
    db,
    jobs.map((job) => ({ ...endOf(job), outcome })),
  );
const unauthorized = (jobs: readonly ClaimedJob[]) =>
  queue.fail(db, jobs.map(endOf), { outcome: 'unauthorized', error: 'HTTP 401' });
const forbidden = (jobs: readonly ClaimedJob[]) =>
  queue.fail(db, jobs.map(endOf), { permanent: true, outcome: 'forbidden', error: 'HTTP 403' });
const refuse = (jobs: readonly ClaimedJob[], outcome = 'schema') =>
  queue.fail(db, jobs.map(endOf), { permanent: true, outcome, error: 'price: expected a number' });
const health = async (source = 'paid') => {
  const [row] = await db.query<Record<string, unknown>>(
    `select state, paused_by, pause_reason, denied_keys, paused_types from pgfresh.source_health where source = $1::text`,
    [source],
  );
  return row!;
};
const warnings = () => db.query('select code, subject from pgfresh.warnings order by 1, 2');
const failed = () => scene.value<number>(`select count(*)::int from pgfresh.failed_jobs where source <> 'market'`);

describe('an API key that the provider does not accept', () => {
  describe.each([
    ['with a rate', { rate: 600 }],
    ['without one', {}],
  ])('of a source %s', (_name, limits) => {
    it('truth 3: a 401 pauses the source that has one key, fails nothing, and one job tries later', async () => {
      await scene.source('paid', limits);
      await scene.type('price', 'paid');
      await queue.enqueueMany(db, 'price', keys(40), { priority: 1 });
      const jobs = await scene.claim({ limit: 10 });
      await clock.advance('1 second');
      await unauthorized(jobs.slice(0, 1));
      expect(await health()).toMatchObject({
        state: 'paused',
        paused_by: 'credentials',
        pause_reason: 'the provider refuses API key 1: HTTP 401',
        denied_keys: [1],
      });
      expect(await warnings()).toEqual([{ code: 'key_refused', subject: 'paid' }]);
      // What was on its way comes back too, and prolongs nothing.
      await clock.advance('1 minute');
      await unauthorized(jobs.slice(1));
      expect(await scene.claim()).toEqual([]);
      expect(await scene.value(`select count(*)::int from pgfresh_engine.job where state = 'r'`)).toBe(40);
      await clock.advance('4 minutes');
      expect(await health()).toMatchObject({ state: 'probing' });
      const claims = await Promise.all(Array.from({ length: 6 }, () => scene.claim({ limit: 5 })));
      expect(claims.flat()).toHaveLength(1);
      await unauthorized(claims.flat());
      expect(await health()).toMatchObject({ state: 'paused', paused_by: 'credentials' });
      await clock.advance('5 minutes');
      const probe = await scene.claim();
      expect(probe).toHaveLength(1);
      await succeed(probe);
      expect(await health()).toMatchObject({ state: 'ok', denied_keys: [], pause_reason: null });
      expect((await scene.claim({ limit: 39 })).length).toBeGreaterThan(30);
      expect(await scene.value(`select count(*)::int from pgfresh_engine.breaker`)).toBe(0);
    });

    it('truth 3: with two keys, jobs go on with the other one, and only a probe uses the first', async () => {
      await scene.source('paid', { ...limits, apiKeys: 2 });
      await scene.type('price', 'paid');
      await queue.enqueueMany(db, 'price', keys(80), { priority: 1 });
      const first = await scene.claim({ limit: 10 });
      const ofFirst = first.filter(({ apiKey }) => (apiKey ?? 1) === 1);
      await unauthorized(ofFirst.slice(0, 1));
      expect(await health()).toMatchObject({ state: 'ok', denied_keys: [1] });
      const second = await scene.claim({ limit: 10 });
      expect(second.map(({ apiKey }) => apiKey)).toEqual(Array(10).fill(2));
      await succeed(second);
      await clock.advance('5 minutes');
      const third = await scene.claim({ limit: 10 });
      expect(third.filter(({ apiKey }) => apiKey === 1)).toHaveLength(1);
      expect((await scene.claim({ limit: 5 })).filter(({ apiKey }) => apiKey === 1)).toEqual([]);
      // The other one is refused too: no key is left, so the source waits.
      await unauthorized(third);
      expect(await health()).toMatchObject({ state: 'paused', denied_keys: [1, 2] });
      await clock.advance('5 minutes');
      const probe = await scene.claim({ limit: 10 });
      expect(probe).toHaveLength(1);
      await succeed(probe);
      expect(await health()).toMatchObject({ state: 'ok', denied_keys: [probe[0]!.apiKey === 1 ? 2 : 1] });
    });
  });

  it('truth 3: a probe that nothing is heard of is followed by another a minute later', async () => {
    await scene.source('paid');
    await scene.type('price', 'paid');
    await queue.enqueueMany(db, 'price', keys(5), { priority: 1 });
    await unauthorized([await scene.claimOne()]);
    await clock.advance('5 minutes');
    const [probe] = await scene.claim();
    await queue.putBack(db, [endOf(probe!)], { lost: true });
    expect(await scene.claim()).toEqual([]);
    await clock.advance('1 minute');
    expect(await scene.claim()).toHaveLength(1);
  });

  it('truth 3: a single 403 fails its pair only; three pairs in a row pause the key', async () => {
    await scene.source('paid');
    await scene.type('price', 'paid');
    await queue.enqueueMany(db, 'price', keys(20), { priority: 1 });
    const since = await failed();
    await forbidden([await scene.claimOne()]);
    await forbidden([await scene.claimOne()]);
    await succeed([await scene.claimOne()]);
    await forbidden([await scene.claimOne()]);
    await forbidden([await scene.claimOne()]);
    expect(await health()).toMatchObject({ state: 'ok' });
    expect((await failed()) - since).toBe(4);
    const [last] = await scene.claim({ limit: 1 });
    expect(await forbidden([last!])).toMatchObject([{ status: 'pending' }]);
    expect(await health()).toMatchObject({ state: 'paused', pause_reason: 'the provider refuses API key 1: HTTP 403' });
    expect((await failed()) - since).toBe(4);
  });

  it('truth 3: the same pair three times is not three pairs', async () => {
    await scene.source('paid');
    await scene.type('price', 'paid');
    for (let time = 0; time < 4; time++) {
      await queue.enqueue(db, 'price', 'A', { force: true });
      await forbidden([await scene.claimOne()]);
    }
    expect(await health()).toMatchObject({ state: 'ok' });
  });

  it.each([
    ['403', forbidden],
    ['401', unauthorized],
  ])(
    'truth 3: pairs that the provider always refuses (%s) do not keep the source from the others',
    async (_, refusal) => {
      await scene.source('paid');
      await scene.type('price', 'paid');
      // The most viewed, so each claim would take them first.
      const bad = ['bad1', 'bad2', 'bad3'];
      await queue.enqueueMany(db, 'price', bad, { priority: 1_000 });
      await queue.enqueueMany(db, 'price', keys(20), { priority: 1 });
      const asked = new Map<string, number>();
      // A day, by the minute.
      for (let minute = 0; minute < 24 * 60; minute++) {
        for (const job of await scene.claim({ limit: 1 })) {
          asked.set(job.key, (asked.get(job.key) ?? 0) + 1);
          if (bad.includes(job.key)) await refusal([job]);
          else await succeed([job]);
        }
        await clock.advance('1 minute');
      }
      expect([...asked.keys()].toSorted()).toEqual([...bad, ...keys(20)].toSorted());
      // And they are given up after their retries.
      expect(Math.max(...bad.map((key) => asked.get(key)!))).toBeLessThan(12);
      expect(await scene.value(`select count(*)::int from pgfresh_engine.job`)).toBe(0);
      expect(await health()).toMatchObject({ state: 'ok', denied_keys: [] });
    },
  );

  it.for([
    ['401', unauthorized, 1],
    ['403', forbidden, 3],
  ] as const)(
    'truth 3: pairs that are refused with %s, and have the most viewers, do not keep the source from the others',
    async ([, turnBack, count]) => {
      await scene.source('paid');
      await scene.type('price', 'paid');
      const refused = keys(count);
      await queue.enqueueMany(db, 'price', refused, { priority: 900 });
      await queue.enqueueMany(db, 'price', ['other', 'more', 'another'], { priority: 1 });
      const asked: string[] = [];
      // Half an hour, in which each is viewed all the time.
      for (let minute = 0; minute < 30; minute++) {
        for (let jobs = await scene.claim({ limit: 1 }); jobs.length > 0; jobs = await scene.claim({ limit: 1 })) {
          asked.push(jobs[0]!.key);
          await (refused.includes(jobs[0]!.key) ? turnBack(jobs) : succeed(jobs));
        }
        await clock.advance('1 minute');
        const due = await db.query<{ key: string }>(
          `select p.key from pgfresh_engine.pairs as p join pgfresh.data_type_registry as r using (type_id)
           where r.data_type = 'price' and p.job_id is null and (p.next_ask_at > pgfresh.clock()) is not true`,
        );
        for (const { key } of due) {
          await queue.enqueue(db, 'price', key, { priority: refused.includes(key) ? 900 : 1 });
        }
      }
      // But for the first pauses, one for each, they are asked every minute.
      for (const key of ['other', 'more', 'another']) {
        expect(asked.filter((one) => one === key).length).toBeGreaterThanOrEqual(30 - 5 * count);
      }
      expect(asked.filter((one) => refused.includes(one)).length).toBeLessThan(8 * count);
      expect(await health()).toMatchObject({ state: 'ok', denied_keys: [] });
    },
  );

  it('truth 3: is tried at once when an operator resumes the source', async () => {
    await scene.source('paid');
    await scene.type('price', 'paid');
    await queue.enqueueMany(db, 'price', keys(5), { priority: 1 });
    await unauthorized([await scene.claimOne()]);
    expect(await scene.value(`pgfresh.resume_source('paid')`)).toBe(true);
    expect(await health()).toMatchObject({ state: 'ok', denied_keys: [] });
    expect(await scene.claim()).toHaveLength(5);
  });
});

describe('a data type whose answers cannot be used', () => {
  beforeEach(async () => {
    await scene.source('paid');
    await scene.type('price', 'paid');
    await scene.type('name', 'paid');
    await queue.enqueueMany(db, 'price', keys(20), { priority: 9 });
    await queue.enqueueMany(db, 'name', keys(5), { priority: 1 });
  });
  const typeId = (name: string) =>
    scene.value<number>(`select type_id from pgfresh.data_type_registry where data_type = $1::text`, [name]);
  const claimPrices = async (limit: number) => scene.claim({ limit, types: [await typeId('price')] });

  it('truth 3: a claim that takes other jobs leaves the try of a paused type to the next one', async () => {
    const names = await scene.claim({ limit: 5, types: [await typeId('name')] });
    await clock.advance('1 second');
    await refuse(names);
    await queue.enqueueMany(db, 'name', ['new'], { priority: 1 });
    await clock.advance('5 minutes');
    for (let job = 0; job < 20; job++) expect((await scene.claimOne()).key).toMatch(/^k/);
    expect(await scene.claimOne()).toMatchObject({ key: 'new' });
  });

  it('truth 3: five refusals in a row pause the type alone, and say so; one job tries later', async () => {
    await refuse(await claimPrices(4));
    expect(await health()).toMatchObject({ state: 'ok', paused_types: [] });
    await refuse(await claimPrices(1), 'sanity');
    expect(await health()).toMatchObject({
      state: 'ok',
      paused_types: [{ data_type: 'price', reason: '5 answers in a row were refused: price: expected a number' }],
    });
    expect(await warnings()).toEqual([{ code: 'answers_refused', subject: 'price' }]);
    expect(await scene.value(`pgfresh.explain_pair('price', 'k10')`)).toMatchObject({
      reason: 'paused',
      words: 'The last answers for price were refused; one is tried again in 5 min.',
    });
    // The other types of the source go on.
    const others = await scene.claim();
    expect(others.map(({ key }) => key)).toEqual(keys(5));
    await succeed(others);
    await clock.advance('4 minutes 59 seconds');
    expect(await scene.claim()).toEqual([]);
    await clock.advance('1 second');
    const claims = await Promise.all(Array.from({ length: 6 }, () => scene.claim({ limit: 5 })));
    expect(claims.flat()).toHaveLength(1);
    await refuse(claims.flat());
    await clock.advance('4 minutes 59 seconds');
    expect(await scene.claim()).toEqual([]);
    await clock.advance('1 second');
    await succeed(await scene.claim());
    expect(await health()).toMatchObject({ paused_types: [] });
    expect(await scene.claim()).toHaveLength(13);
  });

  it('truth 3: a good answer in between, or the same pair again, is not a row', async () => {
    await refuse(await claimPrices(4));
    await succeed(await claimPrices(1));
    await refuse(await claimPrices(4));
    expect(await health()).toMatchObject({ paused_types: [] });
    await queue.enqueue(db, 'price', 'k05', { force: true, priority: 1000 });
    const [again] = await claimPrices(1);
    expect(again!.key).toBe('k05');
    await refuse([again!]);
    expect(await health()).toMatchObject({ paused_types: [] });
  });

  it('truth 2: five answers in a row that are older than what is there warn and pause the type alone', async () => {
    await succeed(await claimPrices(4), 'older_source');
    expect(await warnings()).toEqual([]);
    await succeed(await claimPrices(1), 'older_source');
    expect(await warnings()).toEqual([{ code: 'older_source', subject: 'price' }]);
    expect(await health()).toMatchObject({
      state: 'ok',
      paused_types: [{ data_type: 'price', reason: '5 answers in a row were older than what is there' }],
    });
    expect(await scene.value(`pgfresh.explain_pair('price', 'k10')`)).toMatchObject({ reason: 'paused' });
    expect((await scene.claim()).map(({ key }) => key)).toEqual(keys(5));
    await clock.advance('5 minutes');
    await succeed(await scene.claim());
    expect(await health()).toMatchObject({ paused_types: [] });
  });

  it('truth 2: one pair that is always older, and has the most viewers, does not keep its type from the others', async () => {
    await db.query('truncate pgfresh_engine.job, pgfresh_engine.pairs');
    for (let time = 0; time < 5; time++) {
      await queue.enqueue(db, 'price', 'stuck', { priority: 900 });
      await succeed([await scene.claimOne()], 'older_source');
      await clock.advance('1 second');
    }
    expect(await health()).toMatchObject({ paused_types: [{ data_type: 'price' }] });
    await clock.advance('5 minutes');
    await queue.enqueue(db, 'price', 'stuck', { priority: 900 });
    await queue.enqueueMany(db, 'price', keys(3), { priority: 1 });
    const [probe, ...more] = await scene.claim();
    expect([probe?.key, more]).toEqual(['k00', []]);
    await succeed([probe!]);
    expect(await scene.claim()).toHaveLength(3);
  });

  it('truth 2: one newer answer in between begins the row anew', async () => {
    await succeed(await claimPrices(4), 'older_source');
    await succeed(await claimPrices(1), 'unchanged');
    await succeed(await claimPrices(4), 'older_source');
    expect(await health()).toMatchObject({ paused_types: [] });
    expect(await warnings()).toEqual([]);
  });
});

it('a refused answer and the removal of its data type do not wait for each other', async () => {
  await scene.source('paid');
  const type = await scene.type('price', 'paid');
  await queue.enqueueMany(db, 'price', ['A'], { priority: 1 });
  const job = await scene.claimOne();
  await db.transact('end', async (tx) => {
    await tx.query('select from pgfresh_engine.fence_jobs($1::int, $2::bigint[], $3::int[], $4::text[])', [
      type,
      [job.id],
      [job.attempt],
      ['A'],
    ]);
    await tx.query(
      `select pgfresh_engine.keep_refused_answer($1::int, 'A', $2::bigint, 'schema', 'no', 200, 'text/plain', 1, 'x'::bytea),
         pgfresh_engine.count_losses($1::int, 1)`,
      [type, job.id],
    );
    await db.query(`delete from pgfresh.data_type_registry where data_type = 'price'`);
    await queue.fail(tx, [endOf(job)], { permanent: true, outcome: 'schema', error: 'price: expected a number' });
  });
  expect(await db.query('select status from pgfresh_engine.history_other where id = $1::bigint', [job.id])).toEqual([
    { status: 'failed' },
  ]);
  // What the end has written since is cleared by the next recovery.
  await db.query('select pgfresh.recover_stuck_jobs()');
  const left = ['breaker', 'pairs', 'refused_answer', 'type_losses', 'type_stats'].map(
    (table) => `select '${table}' as name from pgfresh_engine.${table} where type_id = ${type}`,
  );
  expect(await db.query(left.join(' union all '))).toEqual([]);
});
