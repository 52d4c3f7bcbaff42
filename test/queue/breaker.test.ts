import { beforeEach, describe, expect, it } from 'vitest';
import type { ClaimedJob } from '../../src/queue/index.ts';
import { freezeClock } from '../harness/clock.ts';
import { QueueScene, unfinish } from './scene.ts';

const scene = await QueueScene.open({ poolSize: 8 });
const { db, queue } = scene;
const clock = await freezeClock(db);
const keys = (count: number) => Array.from({ length: count }, (_, n) => `k${n}`);

beforeEach(async () => {
  await db.query('truncate pgfresh_engine.job, pgfresh_engine.pairs, pgfresh_engine.claim, pgfresh.warnings');
  await db.query(`delete from pgfresh.data_type_registry where data_type <> 'quote'`);
  await db.query(`delete from pgfresh.sources where name <> 'market'`);
  // What a source has called would stay called.
  await db.query('truncate pgfresh_engine.source_past');
  await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
  await scene.source('shaky');
  await scene.type('price', 'shaky', 100);
  await queue.enqueueMany(db, 'price', keys(40), { priority: 1 });
});

const claim = async (limit: number) => {
  const jobs = await scene.claim({ limit });
  // What waits for its retry is never ready within a test: it would change who is claimed next.
  await db.query(`update pgfresh_engine.job set run_at = 'infinity' where state = 'w'`);
  return jobs;
};
const endOf = ({ id, attempt, request }: ClaimedJob) => ({ id, attempt, request, bytes: 10 });
const fail = (jobs: readonly ClaimedJob[], counts = true) =>
  queue.fail(db, jobs.map(endOf), { outcome: 'http_5xx', error: 'status 503', counts });
/** Five failures in a row, the last of a job that was claimed when the others were known. */
const open = async () => {
  await fail(await claim(4));
  await fail(await claim(1));
};
const succeed = (jobs: readonly ClaimedJob[]) => queue.complete(db, jobs.map(endOf));
const health = async () => {
  const [row] = await db.query<Record<string, unknown>>(
    `select state, failure_streak, paused_until, paused_by, pause_reason, last_success_at, last_failure_at from pgfresh.source_health where source = 'shaky'`,
  );
  return row!;
};

it('opens after five failures in a row, for five minutes, and says so', async () => {
  await fail(await claim(4));
  expect(await health()).toMatchObject({ state: 'ok', failure_streak: 4 });
  await fail(await claim(1));
  expect(await health()).toMatchObject({
    state: 'breaker',
    failure_streak: 5,
    paused_by: 'breaker',
    pause_reason: '5 failures in a row: status 503',
  });
  expect(await claim(10)).toEqual([]);
  await clock.advance('4 minutes 59 seconds');
  expect(await claim(10)).toEqual([]);
  expect(await db.query('select code, subject from pgfresh.warnings')).toEqual([
    { code: 'breaker_opened', subject: 'shaky' },
  ]);
});

it('starts to count anew after every success', async () => {
  await fail(await claim(4));
  await succeed(await claim(1));
  await fail(await claim(4));
  expect(await health()).toMatchObject({ state: 'ok', failure_streak: 4 });
});

it('opens after ten retries in ten minutes, though others succeed between them', async () => {
  for (let retry = 0; retry < 9; retry++) {
    await fail(await claim(1));
    await succeed(await claim(1));
    await clock.advance('1 minute');
  }
  expect(await health()).toMatchObject({ state: 'ok' });
  await fail(await claim(1));
  expect(await health()).toMatchObject({ state: 'breaker', pause_reason: '10 retries in 10 min: status 503' });
});

it('does not open where ten retries take longer', async () => {
  for (let retry = 0; retry < 15; retry++) {
    await fail(await claim(1));
    await succeed(await claim(1));
    await clock.advance('67 seconds');
  }
  expect(await health()).toMatchObject({ state: 'ok' });
});

it('does not count what is not the fault of the source', async () => {
  await fail(await claim(20), false);
  await queue.fail(db, (await claim(10)).map(endOf), { permanent: true, outcome: 'schema' });
  expect(await health()).toMatchObject({ state: 'ok', failure_streak: 0, last_failure_at: null });
});

it('counts what SQL clients report, unless it is for good', async () => {
  const jobs = await claim(10);
  for (const { id } of jobs.slice(0, 5))
    await db.query(`select pgfresh.fail_queue_job($1::bigint, '404', p_permanent => true)`, [id]);
  expect(await health()).toMatchObject({ state: 'ok', failure_streak: 0 });
  for (const { id } of jobs.slice(5)) await db.query(`select pgfresh.fail_queue_job($1::bigint, '503')`, [id]);
  expect(await health()).toMatchObject({ state: 'breaker' });
});

describe('when the five minutes are over', () => {
  beforeEach(async () => {
    await open();
    await clock.advance('5 minutes');
  });

  it('exactly one job is let through, however many ask at once', async () => {
    expect(await health()).toMatchObject({ state: 'probing' });
    const claims = await Promise.all(Array.from({ length: 8 }, () => claim(5)));
    expect(claims.flat()).toHaveLength(1);
    expect(await claim(5)).toEqual([]);
  });

  it('its success closes the breaker', async () => {
    await succeed(await claim(5));
    expect(await health()).toMatchObject({ state: 'ok', failure_streak: 0, paused_until: null, paused_by: null });
    expect(await claim(20)).toHaveLength(20);
    // The retries of before are forgotten, too.
    expect(await scene.value(`select recent_retries = '{}' from pgfresh.sources where name = 'shaky'`)).toBe(true);
  });

  it('its failure opens it again, and the next one tries five minutes later', async () => {
    await fail(await claim(5));
    expect(await health()).toMatchObject({ state: 'breaker', pause_reason: 'the probe failed: status 503' });
    await clock.advance('4 minutes 59 seconds');
    expect(await claim(5)).toEqual([]);
    await clock.advance('1 second');
    expect(await claim(5)).toHaveLength(1);
  });

  it.each(['put_back', 'lost'] as const)('a probe that is %s frees itself', async (verdict) => {
    const [probe] = await claim(5);
    await unfinish(queue, db, [endOf(probe!)], verdict);
    expect(await claim(5)).toHaveLength(1);
    expect(await claim(5)).toEqual([]);
  });

  it('a probe whose worker dies frees itself', async () => {
    const [probe] = await claim(5);
    await db.query(`update pgfresh_engine.process set lease_until = pgfresh.clock()`);
    await clock.advance('1 minute');
    await db.query(`update pgfresh_engine.recovery set ran_at = pgfresh.clock(), trust_leases_from = '-infinity'`);
    expect(await scene.value(`pgfresh.recover_stuck_jobs()`)).toMatchObject({ lost: 1 });
    await scene.register();
    await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
    const again = await claim(5);
    expect(again).toHaveLength(1);
    expect(await succeed([probe!])).toEqual([]);
    expect(await health()).toMatchObject({ state: 'probing' });
    await succeed(again);
    expect(await health()).toMatchObject({ state: 'ok' });
  });

  it('a claim beside its end neither waits for it nor lets another through', async () => {
    const [probe] = await claim(5);
    await db.transact('end', async (tx) => {
      await queue.fail(tx, [endOf(probe!)], { outcome: 'http_5xx', counts: true });
      expect(await scene.claim({ limit: 5 })).toEqual([]);
    });
    expect(await claim(5)).toEqual([]);
    expect(await health()).toMatchObject({ state: 'breaker' });
  });

  it('an answer from the cache proves nothing', async () => {
    const [probe] = await claim(5);
    await queue.complete(db, [{ ...endOf(probe!), bytes: 0, calls: 0 }]);
    expect(await health()).toMatchObject({ state: 'probing', failure_streak: 5 });
    expect(await claim(5)).toHaveLength(1);
  });
});

it('is neither closed nor opened for longer by what was called before it opened', async () => {
  const before = await claim(10);
  await fail(before.slice(0, 4));
  await fail(before.slice(4, 5));
  await clock.advance('1 minute');
  await succeed(before.slice(5, 7));
  await fail(before.slice(7));
  expect(await health()).toMatchObject({ state: 'breaker' });
  await clock.advance('4 minutes');
  expect(await claim(5)).toHaveLength(1);
});

it('leaves a longer pause of a person as it is', async () => {
  await fail(await claim(4));
  const jobs = await claim(1);
  await db.query(`select pgfresh.pause_source('shaky', p_reason => 'holiday')`);
  await fail(jobs);
  expect(await scene.value(`select breaker_opened_at is not null from pgfresh.sources where name = 'shaky'`)).toBe(
    true,
  );
  expect(await health()).toMatchObject({ state: 'paused', pause_reason: 'holiday' });
});

it('is closed by hand', async () => {
  await open();
  expect(await scene.value(`pgfresh.resume_source('shaky')`)).toBe(true);
  expect(await health()).toMatchObject({ state: 'ok', failure_streak: 0 });
  expect(await claim(7)).toHaveLength(7);
  expect(await scene.value(`pgfresh.resume_source('shaky')`)).toBe(false);
});

it('writes the source no more often than every ten seconds while all goes well', async () => {
  const written = () => scene.value<string>(`select xmin::text from pgfresh.sources where name = 'shaky'`);
  await succeed(await claim(1));
  const first = await written();
  await clock.advance('9 seconds');
  await succeed(await claim(3));
  expect(await written()).toBe(first);
  await clock.advance('2 seconds');
  await succeed(await claim(1));
  expect(await written()).not.toBe(first);
});

it('truth 21: failures of one moment count once, however many and however they are told', async () => {
  const together = await claim(20);
  await clock.advance('1 second');
  await fail(together.slice(0, 10));
  for (const job of together.slice(10)) {
    await clock.advance('1 second');
    await fail([job]);
  }
  expect(await health()).toMatchObject({ state: 'ok', failure_streak: 20 });
  // Whoever is called when that is known, and fails too, says something new.
  await fail(await claim(1));
  expect(await health()).toMatchObject({ state: 'breaker', failure_streak: 21 });
});

it('truth 21: its numbers are settings of the source', async () => {
  await db.query(
    `update pgfresh.sources set breaker_failures = 2, breaker_window = '1 minute', breaker_pause = '30 seconds' where name = 'shaky'`,
  );
  await fail(await claim(1));
  expect(await health()).toMatchObject({ state: 'ok' });
  await fail(await claim(1));
  expect(await health()).toMatchObject({ state: 'breaker', pause_reason: '2 failures in a row: status 503' });
  await clock.advance('29 seconds');
  expect(await claim(5)).toEqual([]);
  await clock.advance('1 second');
  await succeed(await claim(5));
  for (let retry = 0; retry < 3; retry++) {
    await fail(await claim(1));
    await succeed(await claim(1));
    await clock.advance('10 seconds');
  }
  expect(await health()).toMatchObject({ state: 'ok' });
  await fail(await claim(1));
  expect(await health()).toMatchObject({ state: 'breaker', pause_reason: '4 retries in 60 s: status 503' });
});

it('truth 13: a pause that is over is not shown any more', async () => {
  await open();
  await clock.advance('5 minutes');
  expect(await health()).toMatchObject({ state: 'probing', paused_until: null, paused_by: null, pause_reason: null });
  await db.query(
    `select pgfresh.resume_source('shaky'), pgfresh.pause_source('shaky', pgfresh.clock() + interval '1 minute', 'lunch')`,
  );
  expect(await health()).toMatchObject({ state: 'paused', pause_reason: 'lunch' });
  await clock.advance('1 minute');
  expect(await health()).toMatchObject({ state: 'ok', paused_until: null, paused_by: null, pause_reason: null });
});
