import { expect, test } from 'vitest';
import type { Queryable } from '../../src/database/index.ts';
import { Queue, type ClaimedJob } from '../../src/queue/index.ts';
import { blocked } from '../harness/blocked.ts';
import { freezeClock } from '../harness/clock.ts';
import { openDatabase } from '../harness/database.ts';
import { seededRandom } from '../harness/random.ts';
import { openSession } from '../harness/session.ts';
import { failures, QueueScene, unfinish } from '../queue/scene.ts';
import { RefreshScene } from '../refresh/scene.ts';

const keys = (count: number, prefix = 'K'): string[] =>
  Array.from({ length: count }, (_, index) => `${prefix}${index}`);
const ends = (jobs: readonly ClaimedJob[], bytes = 0) =>
  jobs.map(({ id, attempt, request }) => ({ id, attempt, request, bytes }));

test('contract 1: of 16 concurrent claimers and 10,000 jobs each job goes to exactly one', async () => {
  const scene = await QueueScene.open();
  await scene.queue.enqueueMany(scene.db, 'quote', keys(8_000));
  await scene.queue.enqueueMany(scene.db, 'quote', keys(2_000, 'viewed '), { priority: 9 });
  const random = seededRandom(1);
  const claimed: ClaimedJob[] = [];
  const claimer = async (number: number): Promise<number> => {
    const connection = openDatabase(scene.url, { poolSize: 1 });
    const [row] = await connection.query<{ worker: number }>(
      `select pgfresh_engine.register_process('worker', $1::text) as worker`,
      [`claimer ${number}`],
    );
    const queue = new Queue();
    let mine = 0;
    // Whatever a claimer is told, an error above all, ends the test: nobody has to repeat a claim.
    while (claimed.length < 10_000) {
      const { jobs } = await queue.claim(connection, { worker: row!.worker, limit: 1 + Math.floor(random() * 40) });
      claimed.push(...jobs);
      mine += jobs.length;
    }
    return mine;
  };
  const shares = await Promise.all(Array.from({ length: 16 }, (_, number) => claimer(number)));
  expect(claimed).toHaveLength(10_000);
  expect(new Set(claimed.map(({ id }) => id)).size).toBe(10_000);
  expect(claimed.every(({ attempt }) => attempt === 1)).toBe(true);
  expect(Math.min(...shares)).toBeGreaterThan(0);
  expect(
    await scene.value('(select count(*) from pgfresh_engine.job where state = $1::"char" and attempt = 1)', ['x']),
  ).toBe(10_000);
});

/** The ways in which a claim finds its jobs. */
interface ClaimPath {
  readonly from: string;
  readonly sources: readonly string[];
  readonly floors?: true;
  /** Half of the jobs are for viewed pairs without a row, which have a share of each claim. */
  readonly shares?: true;
}

const claims: readonly ClaimPath[] = [
  { from: 'one source', sources: ['free'] },
  { from: 'one source, from where it was before', sources: ['free'], floors: true },
  { from: 'several sources', sources: ['free', 'other'] },
  { from: 'several sources, from where it was before', sources: ['free', 'other'], floors: true },
  { from: 'one source, with shares', sources: ['free'], shares: true },
  { from: 'several sources, with shares', sources: ['free', 'other'], shares: true },
  { from: 'a source with a quota', sources: ['metered'] },
  { from: 'a source with places', sources: ['counted'] },
  { from: 'sources with limits and without', sources: ['free', 'metered', 'counted'] },
];

test.for(claims)('contract 1: no job goes to two claimers at once: $from', async (path) => {
  const scene = await QueueScene.open({ poolSize: 9 });
  const { ids, claim } = await claimScene(scene, path);
  const soon = { attempts: 1, lockTimeoutMs: 500 };
  // A claim that is not committed yet: what it has is passed over, and nobody waits for it.
  const taken = await scene.db.transact('first', async (tx) => {
    const first = await claim(tx, 30);
    expect(first.length).toBeGreaterThan(0);
    const second = await scene.db.transact('second', (other) => claim(other, 20), soon);
    // Claims of a source with limits go one after the other.
    if (path.sources.includes('free')) expect(second).toHaveLength(20);
    const third = await scene.db.transact('third', (other) => claim(other, 1_000), soon);
    return [...first, ...second, ...third];
  });
  expect(new Set(taken).size).toBe(taken.length);
  const rest = async (): Promise<void> => {
    while (taken.length < ids) taken.push(...(await claim(scene.db, 7)));
  };
  await Promise.all(Array.from({ length: 8 }, rest));
  expect(taken).toHaveLength(ids);
  expect(new Set(taken).size).toBe(ids);
  expect(await scene.value(`(select count(*) from pgfresh_engine.job where state <> 'x' or attempt <> 1)`)).toBe(0);
});

/** 300 jobs of each of these sources, and a claim of any of them. */
async function claimScene(scene: QueueScene, { sources, floors, shares }: ClaimPath) {
  const worker = await scene.register();
  await scene.db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
  await scene.db.query(`delete from pgfresh.data_type_registry; delete from pgfresh.sources`);
  const types: number[] = [];
  for (const source of sources) {
    const limits = { metered: { quotaBytes: 1_000_000_000, window: '1 day' }, counted: { concurrency: 1_000 } };
    await scene.source(source, source in limits ? limits[source as keyof typeof limits] : {});
    const type = await scene.type(source, source, source === 'metered' ? 100 : 0);
    if (shares)
      await scene.db.query(
        `insert into pgfresh_engine.pairs (type_id, key, demanded, viewers) select $1::int, key, true, 5 from unnest($2::text[]) as key`,
        [type, keys(150)],
      );
    await scene.queue.enqueueMany(scene.db, source, keys(300), { priority: 5 });
    types.push(type);
  }
  const claim = async (db: Queryable, limit: number): Promise<number[]> => {
    const rows = await db.query<{ id: number }>(
      `select id from pgfresh_engine.claim_jobs($1::bigint, gen_random_uuid(), $2::int, p_floor_types => $3::int[], p_floor_lanes => $4::smallint[], p_floor_ids => $5::bigint[])`,
      [worker, limit, ...(floors ? [types, types.map(() => 49), types.map(() => 1)] : [[], [], []])],
    );
    return rows.map(({ id }) => id);
  };
  return { ids: 300 * sources.length, claim };
}

test('contract 2: recovery and completion of the same jobs at once: no deadlock, and one effect each', async () => {
  const scene = await QueueScene.open({ poolSize: 8 });
  const clock = await freezeClock(scene.db);
  const random = seededRandom(2);
  const shuffled = <T>(items: readonly T[]): T[] =>
    items
      .map((item) => ({ item, place: random() }))
      .toSorted((a, b) => a.place - b.place)
      .map(({ item }) => item);
  const tally = { completed: 0, lost: 0 };
  for (let round = 0; round < 60; round++) {
    await scene.queue.enqueueMany(scene.db, 'quote', keys(40, `${round} `));
    await scene.register();
    const jobs = await scene.claim();
    expect(jobs).toHaveLength(40);
    await clock.advance('301 seconds');
    const completions = [0, 1, 2].map(() => shuffled(jobs).slice(0, 15 + Math.floor(random() * 25)));
    const acts: (() => Promise<number[]>)[] = [
      ...completions.map((some) => () => scene.queue.complete(scene.db, ends(some, 7))),
      () => scene.db.query('select pgfresh.recover_stuck_jobs()').then(() => []),
      () => scene.db.query('select pgfresh_engine.recover_silent_jobs(500)').then(() => []),
    ];
    const done = (await Promise.all(shuffled(acts).map((act) => act()))).flat();
    // What was too early or locked for the others is lost now.
    await scene.db.query('select pgfresh.recover_stuck_jobs()');
    const ids = jobs.map(({ id }) => id);
    const [fates] = await scene.db.query<{ succeeded: number[]; lost: number[] }>(
      `select array(select id from pgfresh_engine.history_succeeded where id = any ($1::bigint[]) order by id) as succeeded,
        array(select id from pgfresh_engine.job where id = any ($1::bigint[]) and state = 'r' and attempt = 1 and lost = 1 order by id) as lost`,
      [ids],
    );
    const [succeeded, lost] = [fates!.succeeded.map(Number), fates!.lost.map(Number)];
    expect(done.map(Number).toSorted((a, b) => a - b)).toEqual(succeeded);
    expect([...succeeded, ...lost].toSorted((a, b) => a - b)).toEqual(ids);
    tally.completed += succeeded.length;
    tally.lost += lost.length;
    await scene.db.query(`select pgfresh.cancel_queue_jobs(p_data_type => 'quote')`);
  }
  expect(tally.completed + tally.lost).toBe(60 * 40);
  expect(Math.min(tally.completed, tally.lost)).toBeGreaterThan(0);
  expect(await scene.value('(select sum(bytes)::bigint from pgfresh_engine.usage)')).toBe(tally.completed * 7);
});

/** Whatever takes jobs back, with what has to have happened before and how many of two jobs it takes. */
const takers: readonly {
  readonly by: string;
  readonly before: string;
  readonly act: string;
}[] = [
  {
    by: 'recovery of a dead worker',
    before: `lease_until = '-infinity'`,
    act: `pgfresh.recover_stuck_jobs('1 day')`,
  },
  {
    by: 'recovery of silent jobs',
    before: `lease_until = 'infinity'`,
    act: `pgfresh.recover_stuck_jobs('1 day')`,
  },
  {
    by: 'an SQL client that takes over silent jobs',
    before: `lease_until = 'infinity'`,
    act: `pgfresh.claim_next_pending_job(p_data_types => '{}')`,
  },
  { by: 'a worker that retires', before: `lease_until = 'infinity'`, act: 'pgfresh_engine.retire_process(:worker)' },
  {
    by: 'a claim whose answer was lost',
    before: `lease_until = 'infinity'`,
    act: 'pgfresh_engine.release_claim(:worker, (select request from pgfresh_engine.claim))',
  },
];

test.for(takers)(
  'contract 2: $by passes over a job that is being ended, and does not wait',
  async ({ before, act }) => {
    const scene = await QueueScene.open();
    const clock = await freezeClock(scene.db);
    await scene.queue.enqueueMany(scene.db, 'quote', ['ends', 'stuck']);
    const worker = await scene.register();
    const [ending, stuck] = await scene.claim();
    await clock.advance('301 seconds');
    await scene.db.query(`update pgfresh_engine.process set ${before}`);
    await scene.db.transact('end', async (tx) => {
      expect(await scene.queue.complete(tx, ends([ending!], 7))).toEqual([ending!.id]);
      // Whoever has to wait is refused.
      const taking = scene.db.transact(
        'take',
        (other) => other.query(`select ${act.replace(':worker', String(worker))}`),
        {
          attempts: 1,
          lockTimeoutMs: 500,
        },
      );
      await expect(taking).resolves.toHaveLength(1);
      expect(await scene.job(stuck!.id)).toMatchObject({ status: 'pending' });
    });
    expect(await scene.job(ending!.id)).toMatchObject({ status: 'succeeded', attempts: 1, data_size_bytes: 7 });
  },
);

test('contract 2: a worker that comes back after its job was taken over changes nothing, however it ends it', async () => {
  const scene = await QueueScene.open();
  await freezeClock(scene.db);
  await scene.register();
  await scene.queue.enqueue(scene.db, 'quote', 'A');
  const late = await scene.claimOne();
  await scene.db.query(`update pgfresh_engine.process set lease_until = '-infinity'`);
  expect(await scene.value(`pgfresh.recover_stuck_jobs('1 day')`)).toMatchObject({ lost: 1 });
  await scene.register('next');
  const next = await scene.claimOne();
  expect(next).toMatchObject({ id: late.id, attempt: 2 });
  const state = () => scene.db.query('select * from pgfresh_engine.job');
  const taken = await state();

  expect(await scene.queue.complete(scene.db, ends([late], 5))).toEqual([]);
  for (const how of failures) expect(await unfinish(scene.queue, scene.db, ends([late], 5), how)).toEqual([]);
  // The same from plain SQL, which does not name its claim.
  const token = [late.id, late.attempt];
  expect(await scene.value('pgfresh.complete_queue_job($1::bigint, 5, $2::int)', token)).toBe(false);
  await scene.db.query(`select pgfresh.fail_queue_job($1::bigint, 'late', $2::int, true, 5)`, token);
  const end = `jsonb_build_array(jsonb_build_object('id', $1::bigint, 'attempt', $2::int, 'bytes', 5))`;
  for (const ending of ['fail_jobs', 'put_back_jobs'])
    expect(await scene.db.query(`select * from pgfresh_engine.${ending}(${end})`, token)).toEqual([]);
  expect(await scene.value('pgfresh.reset_job_immediate($1::bigint, $2::int)', token)).toBe(false);
  expect(await scene.value('pgfresh.heartbeat_jobs(array[$1::bigint], array[$2::int])', token)).toEqual([]);
  expect(await state()).toEqual(taken);

  expect((await scene.queue.complete(scene.db, ends([next], 7))).map(Number)).toEqual([late.id]);
  expect(await scene.value('(select sum(bytes)::int from pgfresh_engine.usage)')).toBe(7);
  expect(await scene.db.query('select attempt, bytes::int from pgfresh_engine.history_succeeded')).toEqual([
    { attempt: 2, bytes: 7 },
  ]);
});

test('contract 11: a claim reads no more buffers beside 200,000 finished jobs than beside none', async () => {
  const [beside0, beside200000] = [await claimBeside(0), await claimBeside(200_000)];
  expect(beside0).toBeGreaterThan(0);
  // Buffers of equal claims differ by some percent; to read the finished ones would take thousands.
  expect(beside200000).toBeLessThanOrEqual(beside0 * 1.1);
});

test('contract 11: jobs that have ended are not in the table of open ones, however they ended', async () => {
  const scene = await QueueScene.open({ poolSize: 1 });
  const worker = await scene.register();
  await scene.db.query('alter table pgfresh_engine.job set (autovacuum_enabled = off)');
  const finish = async (round: number): Promise<void> => {
    await scene.queue.enqueueMany(scene.db, 'quote', keys(2_000, `${round} `));
    for (let left = 2_000; left > 0;) {
      const jobs = await scene.claim({ limit: 500 });
      left -= jobs.length;
      const [first, second, third] = [jobs.slice(0, 480), jobs.slice(480, 490), jobs.slice(490)];
      expect(await scene.complete(first)).toHaveLength(first.length);
      await scene.queue.fail(scene.db, ends(second), { permanent: true });
      await scene.db.query('select pgfresh.cancel_queue_jobs($1::bigint[])', [third.map(({ id }) => id)]);
    }
  };
  const buffers = async (): Promise<number> => {
    await scene.queue.enqueueMany(scene.db, 'quote', keys(600, 'open '));
    await scene.db.query('vacuum analyze pgfresh_engine.job, pgfresh_engine.pairs');
    for (let warm = 0; warm < 3; warm++) await claimBuffers(scene.db, worker);
    const read = Math.min(await claimBuffers(scene.db, worker), await claimBuffers(scene.db, worker));
    await scene.db.query(`select pgfresh.cancel_queue_jobs(p_data_type => 'quote')`);
    return read;
  };
  await finish(0);
  const few = await buffers();
  for (let round = 1; round <= 6; round++) await finish(round);
  expect(await scene.value('(select count(*) from pgfresh_engine.job)')).toBe(0);
  expect(await buffers()).toBeLessThanOrEqual(few * 1.3);
});

test('contract 11: a claim reads no more buffers beside 20,000 jobs that may not run now than beside none', async () => {
  const [beside0, besidePaused, besideLater] = [
    await claimBesideWaiting(0),
    await claimBesideWaiting(20_000),
    await claimBesideWaiting(20_000, new Date(Date.now() + 3_600_000)),
  ];
  expect(beside0).toBeGreaterThan(0);
  // The indexes may be a level deeper, and equal claims differ by some percent; to walk over the others would take 20,000.
  expect(besidePaused).toBeLessThanOrEqual(beside0 * 1.3);
  expect(besideLater).toBeLessThanOrEqual(beside0 * 1.3);
});

/** Buffers read by a claim while so many jobs wait for their source, which is paused, or for their time. */
async function claimBesideWaiting(count: number, runAt?: Date): Promise<number> {
  const scene = await QueueScene.open({ poolSize: 1 });
  const worker = await scene.register();
  await scene.source('paused');
  await scene.type('page', 'paused');
  await scene.db.query(`update pgfresh.sources set paused_until = 'infinity' where name = 'paused'`);
  await scene.db.query('alter table pgfresh_engine.job set (autovacuum_enabled = off)');
  await scene.queue.enqueueMany(scene.db, runAt ? 'quote' : 'page', keys(count, 'waits '), {
    priority: 9,
    ...(runAt && { runAt }),
  });
  await scene.queue.enqueueMany(scene.db, 'quote', keys(2_000));
  await scene.db.query('vacuum analyze pgfresh_engine.job, pgfresh_engine.pairs');
  return leastBuffers(scene.db, worker);
}

/** Buffers read by one of several claims while so many pairs and jobs of either kind are in the history. */
async function claimBeside(finished: number): Promise<number> {
  const scene = await QueueScene.open({ poolSize: 1 });
  const worker = await scene.register();
  await scene.db.query(
    `insert into pgfresh_engine.pairs (type_id, key, last_job, ok_job, ok_at, outcome)
     select 1, 'old ' || n, n, n, clock_timestamp(), 'fresh' from generate_series(1, $1::int) as n`,
    [finished],
  );
  for (const tree of ['history_succeeded', 'history_other']) {
    await scene.db.query(
      `insert into pgfresh_engine.${tree} (id, ended_at, created_at, bytes, type_id, source_id, priority, attempt, retries, lost, status, outcome, key)
       select n, clock_timestamp(), clock_timestamp(), 100, 1, 1, 0, 1, 0, 0, 'succeeded', 'fresh', 'old ' || n
       from generate_series(1, $1::int) as n`,
      [finished],
    );
  }
  await scene.db.query(`select setval('pgfresh_engine.job_id', 1000000)`);
  await scene.db.query('alter table pgfresh_engine.job set (autovacuum_enabled = off)');
  await scene.queue.enqueueMany(scene.db, 'quote', keys(2_000));
  await scene.db.query('vacuum analyze pgfresh_engine.job, pgfresh_engine.pairs');
  return leastBuffers(scene.db, worker);
}

/**
 * The least of a few claims: the first ones of a session also read the catalogue, and what the server tidies up on the way
 * differs from claim to claim, as it would in an empty database.
 */
async function leastBuffers(db: Queryable, worker: number): Promise<number> {
  const buffers: number[] = [];
  for (let claim = 0; claim < 8; claim++) buffers.push(await claimBuffers(db, worker));
  return Math.min(...buffers);
}

/** Buffers that a claim of 100 jobs reads, the functions inside of it included. */
async function claimBuffers(db: Queryable, worker: number): Promise<number> {
  const [row] = await db.query<{ 'QUERY PLAN': { Plan: Record<string, number> }[] }>(
    `explain (analyze, buffers, format json) select * from pgfresh_engine.claim_jobs(${worker}, gen_random_uuid(), 100)`,
  );
  const plan = row!['QUERY PLAN'][0]!.Plan;
  expect(plan['Actual Rows']).toBe(100);
  return plan['Shared Hit Blocks']! + plan['Shared Read Blocks']!;
}

test('contract 17: a deadlock is put back at once and retried in under a second, without a retry counted', async () => {
  const { scene, job, meet } = await deadlockScene();
  const failedAt = await meet({ attempts: 1 }).then(
    () => expect.fail('there was no deadlock'),
    async (error: unknown) => {
      expect(error).toMatchObject({ code: '40P01' });
      return scene.value<Date>('pgfresh.clock()');
    },
  );
  expect(await scene.job(job.id)).toMatchObject({ status: 'running', attempts: 1 });
  expect(await scene.value('pgfresh.reset_job_immediate($1::bigint, $2::int)', [job.id, job.attempt])).toBe(true);
  let [again] = await scene.claim({ limit: 1 });
  while (!again) [again] = await scene.claim({ limit: 1 });
  expect(again).toMatchObject({ id: job.id, attempt: 2, retries: 0 });
  const row = await scene.job(job.id);
  expect(row).toMatchObject({ status: 'running', retry_count: 0 });
  expect(Number(row!['locked_at']) - Number(failedAt)).toBeLessThan(1_000);
  expect(await scene.complete([job])).toEqual([]);
  expect((await scene.complete([again])).map(Number)).toEqual([job.id]);
});

test('contract 17: a deadlock at the end of a job is repeated with the answer that is already here', async () => {
  const { scene, job, meet } = await deadlockScene();
  expect(await meet({ attempts: 4 })).toBe(2);
  expect(await scene.job(job.id)).toMatchObject({ status: 'succeeded', attempts: 1, retry_count: 0 });
  expect(await scene.value('(select array_agg(amount order by name) from account)')).toEqual([2, 2]);
  expect(await scene.value('(select sum(bytes)::bigint from pgfresh_engine.usage)')).toBe(5);
});

test.for([
  { deadlocks: 1, outcome: 'fresh', so: 'the commit is repeated with the answer that is already here' },
  { deadlocks: 4, outcome: 'interrupted', so: 'the jobs are put back at once, and no retry is counted' },
])('contract 17: after $deadlocks deadlocks of a refresh nobody is blamed: $so', async ({ deadlocks, outcome }) => {
  const scene = await RefreshScene.open();
  for (const key of ['A', 'B']) scene.quote(key, 2);
  await scene.db.query(
    `insert into quote (symbol, price, quoted_at) values ('A', 1, '2026-01-05T11:00:00Z'), ('B', 1, '2026-01-05T11:00:00Z')`,
  );
  // Whoever writes B has A already. It counts, which is not undone with it, waits until the other one waits for A, and
  // then asks for what the other one has.
  await scene.db.query(`
    create sequence public.tries;
    create function public.meet() returns trigger language plpgsql as $$ begin
      if new.symbol = 'B' then
        perform nextval('public.tries');
        while exists (select from pg_locks where locktype = 'advisory' and objid = 4711 and granted)
            and not exists (select from pg_locks where locktype = 'transactionid' and not granted) loop
          perform pg_sleep(0.002);
        end loop;
        perform pg_advisory_xact_lock(4711);
      end if;
      return new;
    end $$;
    create trigger meet before update on quote for each row execute function public.meet()`);
  // Only the refresh looks for deadlocks, so that it is the one that is undone.
  await scene.db.query(`alter database ${new URL(scene.url).pathname.slice(1)} set deadlock_timeout = '20ms'`);
  const db = openDatabase(scene.url, { poolSize: 1 });
  const other = await openSession(scene.url);
  await other.query(`set deadlock_timeout = '1h'`);
  await other.query('select pg_advisory_lock(4711)');
  const writes = (async () => {
    for (let turn = 1; turn <= deadlocks; turn++) {
      while ((await other.query('select from public.tries where is_called and last_value = $1', [turn])).length === 0);
      await other.query(`update quote set name = 'other' where symbol = 'A'`);
    }
    await other.query('select pg_advisory_unlock(4711)');
  })();
  const ended = await scene.refresh(['A', 'B'], 'quote', db);
  await writes;
  expect(ended.map((one) => [one.job.key, one.outcome])).toEqual([
    ['A', outcome],
    ['B', outcome],
  ]);
  const jobs = `select key, status, attempts, retry_count, next_retry_at, outcome from pgfresh.api_call_queue order by key`;
  const seen = outcome === 'fresh' ? { status: 'succeeded', outcome } : { status: 'pending', outcome: null };
  expect(await scene.db.query(jobs)).toEqual(
    ['A', 'B'].map((key) => ({ key, attempts: 1, retry_count: 0, next_retry_at: null, ...seen })),
  );
  expect(await scene.value('(select failure_streak from pgfresh.sources)')).toBe(0);
  if (outcome === 'fresh') return;
  // Ready at once, and nothing of the failed attempts is left.
  expect(await scene.rows()).toEqual(['A', 'B'].map((symbol) => ({ symbol, price: 1 })));
  const again = await scene.refresh([], 'quote', db);
  expect(again.map((one) => [one.outcome, one.job.attempt, one.job.retries])).toEqual([
    ['fresh', 2, 0],
    ['fresh', 2, 0],
  ]);
});

test('contract 17: a serialization failure is not the job’s failure either', async () => {
  const scene = await RefreshScene.open();
  scene.quote('A', 2);
  // A count that is not undone with the transaction.
  await scene.db.query(`
    create sequence public.tries;
    create function public.clash() returns trigger language plpgsql as $$ begin
      if nextval('public.tries') <= 2 then raise exception 'planted' using errcode = '40001'; end if;
      return new;
    end $$;
    create trigger clash before insert on quote for each row execute function public.clash()`);
  expect(await scene.refresh(['A'])).toMatchObject([{ outcome: 'fresh', job: { attempt: 1, retries: 0 } }]);
  expect(await scene.value(`(select last_value from public.tries)`)).toBe(3);
  expect(scene.provider.asked).toEqual(['/quote/A']);
});

/** A job whose end writes two rows of a user's table in the wrong order, and somebody who writes them in the right one. */
async function deadlockScene() {
  const scene = await QueueScene.open({ poolSize: 4 });
  await scene.db.query('create table account (name text primary key, amount int not null)');
  await scene.db.query(`insert into account values ('a', 0), ('b', 0)`);
  await scene.queue.enqueue(scene.db, 'quote', 'AAPL');
  const job = await scene.claimOne();
  const add = (tx: Queryable, name: string) =>
    tx.query('update account set amount = amount + 1 where name = $1::text', [name]);

  /** Runs the end of the job into a deadlock with the other one; tells how often the end was run. */
  const meet = async ({ attempts }: { attempts: number }): Promise<number> => {
    const other = openDatabase(scene.url, { poolSize: 1 });
    const otherHasA = Promise.withResolvers<void>();
    const jobHasB = Promise.withResolvers<void>();
    let runs = 0;
    const otherWrites = other.transact(
      'other',
      async (tx) => {
        // Only the end of the job looks for deadlocks, so that it is the one that is undone.
        await tx.query(`set local deadlock_timeout = '1h'`);
        await add(tx, 'a');
        otherHasA.resolve();
        await jobHasB.promise;
        await add(tx, 'b');
      },
      { lockTimeoutMs: 20_000 },
    );
    const jobEnds = scene.db.transact(
      'end',
      async (tx) => {
        runs++;
        await tx.query(`set local deadlock_timeout = '20ms'`);
        await otherHasA.promise;
        await scene.queue.complete(tx, [{ id: job.id, attempt: job.attempt, request: job.request, bytes: 5 }]);
        await add(tx, 'b');
        jobHasB.resolve();
        // A session looks for a deadlock once in each wait, so the circle has to be closed by this one.
        if (runs === 1) await blocked(scene.db);
        await add(tx, 'a');
      },
      { attempts, lockTimeoutMs: 20_000 },
    );
    const [ended, written] = await Promise.allSettled([jobEnds, otherWrites]);
    expect(written.status).toBe('fulfilled');
    if (ended.status === 'rejected') throw ended.reason as Error;
    return runs;
  };
  return { scene, job, meet };
}
