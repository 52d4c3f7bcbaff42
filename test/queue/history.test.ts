import { expect, it } from 'vitest';
import { freezeClock } from '../harness/clock.ts';
import { QueueScene, unfinish } from './scene.ts';

const scene = await QueueScene.open();
const { db, queue } = scene;
const clock = await freezeClock(db, '2026-05-01T23:59:00Z');
await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);

const maintain = () =>
  scene.value<{ made: number; dropped: number; busy: number; moved: number; aside: number }>(
    'pgfresh.maintain_queue_partitions(7, 30)',
  );
const partitionOf = (key: string) =>
  scene.value<string>(`select tableoid::regclass::text from pgfresh_engine.history_succeeded where key = $1::text`, [
    key,
  ]);

async function succeed(key: string): Promise<void> {
  await queue.enqueue(db, 'quote', key);
  await scene.complete(await scene.claim());
}

it('is kept by day, made ahead, dropped when it is old, and the last success of a pair stays', async () => {
  expect(await maintain()).toEqual({ made: 12, dropped: 0, busy: 0, moved: 0, aside: 0 });
  await succeed('evening');
  await clock.advance('2 minutes');
  await succeed('morning');
  expect([await partitionOf('evening'), await partitionOf('morning')]).toEqual([
    'pgfresh_engine.history_succeeded_20260501',
    'pgfresh_engine.history_succeeded_20260502',
  ]);
  const okJob = await scene.value(`select ok_job from pgfresh_engine.pairs where key = 'evening'`);
  await clock.advance('8 days');
  expect(await maintain()).toMatchObject({ dropped: 2 });
  expect(await scene.value('select count(*)::int from pgfresh_engine.history_succeeded')).toBe(0);
  expect(await scene.value(`select ok_job from pgfresh_engine.pairs where key = 'evening'`)).toBe(okJob);
});

it('takes an end whose day nobody has made, and puts it in order with the next run', async () => {
  await clock.advance('60 days');
  await succeed('surprise');
  expect(await partitionOf('surprise')).toBe('pgfresh_engine.history_succeeded_default');
  // A few rows move at once.
  expect(await maintain()).toMatchObject({ made: 12, busy: 0, moved: 1, aside: 0 });
  expect(await partitionOf('surprise')).toBe('pgfresh_engine.history_succeeded_20260709');
  await clock.advance('8 days');
  await maintain();
  expect(await scene.value(`select count(*)::int from pgfresh_engine.history_succeeded where key = 'surprise'`)).toBe(
    0,
  );
});

it('sound 16: days are attached without reading the default partition, however many rows it has', async () => {
  await clock.advance('60 days');
  await succeed('K');
  // Five days and more of ends, some of them too old to be kept, and the clock of one was ahead.
  await db.query(
    `insert into pgfresh_engine.history_succeeded
     select copy.* from pgfresh_engine.history_succeeded as h cross join generate_series(1, 25000) as n
     cross join lateral jsonb_populate_record(h, jsonb_build_object('id', -n, 'key', 'K' || n,
       'ended_at', h.ended_at + interval '6 days' - n % 20 * interval '1 day')) as copy`,
  );
  const days = () =>
    db.query<{ day: string; rows: number }>(
      `select tableoid::regclass::text as day, count(*)::int as rows from pgfresh_engine.history_succeeded group by 1 order by 1`,
    );
  const read = await db.transact('maintenance', async (tx) => {
    const [filled] = await tx.query<{ oid: number }>(
      `select 'pgfresh_engine.history_succeeded_default'::regclass::oid as oid`,
    );
    await tx.query('select pgfresh.maintain_queue_partitions(7, 30)');
    const [stat] = await tx.query<{ rows: number }>('select pg_stat_get_xact_tuples_returned($1::oid)::int as rows', [
      filled!.oid,
    ]);
    return stat!.rows;
  });
  // Those that move at once, and not each of them for each day.
  expect(read).toBeLessThanOrEqual(1_100);
  // Ends go to their day while the rows are moved.
  await succeed('meanwhile');
  expect(await partitionOf('meanwhile')).toBe('pgfresh_engine.history_succeeded_20260915');
  const moved: number[] = [];
  for (let aside = 1; aside > 0;) {
    const counts = await maintain();
    expect(counts.busy).toBe(0);
    moved.push(counts.moved);
    ({ aside } = counts);
  }
  expect(Math.max(...moved)).toBeLessThanOrEqual(10_000);
  const kept = await days();
  expect(kept.map(({ day }) => day)).toEqual(
    ['08', '09', '10', '11', '12', '13', '14', '15', '16', '17', '18', '19', '20', '21'].map(
      (day) => `pgfresh_engine.history_succeeded_202609${day}`,
    ),
  );
  expect(kept.map(({ rows }) => rows)).toEqual(kept.map(({ day }) => (day.endsWith('15') ? 1_252 : 1_250)));
  expect(await scene.value('select count(*)::int from pgfresh_engine.history_succeeded_default')).toBe(0);
  expect(await maintain()).toMatchObject({ made: 0, moved: 0, aside: 0 });
});

it('truth 26: every attempt of a job is in it, with its outcome, calls and bytes', async () => {
  await maintain();
  const attempt = async () => {
    await clock.advance('1 hour');
    await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
    return scene.claimOne();
  };
  const turnBack = async (verdict: 'retry' | 'put_back' | 'lost', outcome: string | undefined, calls: number) => {
    const { id, attempt: number, request } = await attempt();
    const end = { id, attempt: number, request, bytes: 100 * calls, calls, fetchMs: 7 };
    await unfinish(queue, db, [end], verdict, { ...(outcome === undefined ? {} : { outcome }), error: 'because' });
  };
  const { jobId } = await queue.enqueue(db, 'quote', 'tried');
  await turnBack('retry', 'timeout', 1);
  await turnBack('put_back', 'rate_limited', 2);
  await turnBack('lost', undefined, 0);
  await turnBack('retry', 'http_5xx', 1);
  const last = await attempt();
  await queue.complete(db, [{ ...last, bytes: 50, calls: 1, outcome: 'fresh' }]);
  const attempts = await db.query(
    `select attempts, outcome, status, calls, data_size_bytes as bytes, error_message as error
     from pgfresh.job_attempts where id = $1::bigint order by attempts`,
    [jobId],
  );
  const error = 'because';
  expect(attempts).toEqual([
    { attempts: 1, outcome: 'timeout', status: 'retryable', calls: 1, bytes: 100, error },
    { attempts: 2, outcome: 'rate_limited', status: 'pending', calls: 2, bytes: 200, error },
    // Whether it was made nobody knows, so it counts as one.
    { attempts: 3, outcome: 'worker_lost', status: 'pending', calls: 1, bytes: 0, error },
    { attempts: 4, outcome: 'http_5xx', status: 'retryable', calls: 1, bytes: 100, error },
    { attempts: 5, outcome: 'fresh', status: 'succeeded', calls: 1, bytes: 50, error: null },
  ]);
  const { outcomes } = await scene.value<{ outcomes: { attempt: number; outcome: string }[] }>(
    `pgfresh.explain_pair('quote', 'tried')`,
  );
  expect(outcomes.map(({ attempt: number, outcome }) => [number, outcome])).toEqual([
    [5, 'fresh'],
    [4, 'http_5xx'],
    [3, 'worker_lost'],
    [2, 'rate_limited'],
    [1, 'timeout'],
  ]);
  // One job is one row, however often it was tried.
  expect(await scene.value(`select count(*)::int from pgfresh.api_call_queue where id = $1`, [jobId])).toBe(1);
});

it('truth 26: a job that succeeds at once writes no attempt', async () => {
  await succeed('at once');
  expect(await scene.value(`select count(*)::int from pgfresh.job_attempts where key = 'at once'`)).toBe(1);
  expect(await scene.value(`select count(*)::int from pgfresh_engine.history_attempt where key = 'at once'`)).toBe(0);
});
