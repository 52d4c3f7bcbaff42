import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { freezeClock } from '../harness/clock.ts';
import { QueueScene } from './scene.ts';

const scene = await QueueScene.open();
const { db, queue } = scene;
const clock = await freezeClock(db);

beforeEach(async () => {
  await db.query(
    'truncate pgfresh_engine.job, pgfresh_engine.pairs, pgfresh_engine.claim, pgfresh_engine.process, pgfresh_engine.history_succeeded, pgfresh_engine.history_other cascade',
  );
  await db.query(`update pgfresh_engine.recovery set ran_at = pgfresh.clock(), trust_leases_from = '-infinity'`);
});

const recover = (gap = '90 seconds') =>
  scene.value<Record<string, unknown>>('pgfresh.recover_stuck_jobs($1::interval)', [gap]);

/** Time passes as it does for a process that recovers every few seconds. */
async function pass(seconds: number): Promise<void> {
  for (let left = seconds; left > 0; left -= 5) {
    await clock.advance(`${Math.min(left, 5)} seconds`);
    await recover('10 seconds');
  }
}

const heartbeat = (worker: number, ...known: readonly string[]) =>
  scene.value('pgfresh_engine.heartbeat_process($1::bigint, $2::uuid[])', [worker, known]);

describe('a worker that is gone', () => {
  it('loses its jobs when its lease ends, which counts an attempt and names it', async () => {
    await scene.register('host-1');
    const { jobId } = await queue.enqueue(db, 'quote', 'A');
    const lost = await scene.claimOne();
    await pass(15);
    expect(await scene.job(jobId)).toMatchObject({
      status: 'pending',
      attempts: 1,
      retry_count: 0,
      error_message: expect.stringContaining('host-1') as string,
    });
    expect(await scene.complete([lost])).toEqual([]);
    expect(await scene.value('select count(*)::int from pgfresh_engine.process')).toBe(0);
    await scene.register('host-2');
    expect(await scene.claim()).toMatchObject([{ id: jobId, attempt: 2 }]);
  });

  it('three times fails the job as worker_lost', async () => {
    const { jobId } = await queue.enqueue(db, 'quote', 'A');
    for (let round = 1; round <= 3; round++) {
      await scene.register(`host-${round}`);
      await scene.claimOne();
      await pass(15);
    }
    expect(await scene.job(jobId)).toMatchObject({ status: 'failed', outcome: 'worker_lost', attempts: 3 });
    expect(await scene.value('select lost from pgfresh.failed_jobs')).toBe(3);
  });

  it('is shown with its jobs before they are taken back', async () => {
    await scene.register('host-1');
    await queue.enqueue(db, 'quote', 'A');
    await scene.claimOne();
    await clock.advance('11 seconds');
    expect(await db.query('select key from pgfresh.stuck_jobs')).toEqual([]);
    await clock.advance('1 second');
    expect(await db.query('select key, locked_by from pgfresh.stuck_jobs')).toEqual([
      { key: 'A', locked_by: 'host-1' },
    ]);
  });

  it('cannot claim, renew or be mistaken for a living one', async () => {
    const gone = await scene.register('host-1');
    await clock.advance('15 seconds');
    await expect(scene.claim()).rejects.toMatchObject({ code: 'PGF_LEASE_LOST' });
    expect(await heartbeat(gone)).toEqual({ alive: false });
  });
});

describe('a worker that lives', () => {
  it('keeps its jobs by its heartbeat alone', async () => {
    const worker = await scene.register('host-1');
    await queue.enqueue(db, 'quote', 'A');
    const { request, jobs } = await queue.claim(db, { worker, limit: 1 });
    for (let turn = 0; turn < 10; turn++) {
      await pass(10);
      expect(await heartbeat(worker, request)).toEqual({ alive: true, stranded: [] });
    }
    expect(await scene.complete(jobs)).toHaveLength(1);
    await clock.advance('11 seconds');
    expect(await heartbeat(worker)).toEqual({ alive: true, stranded: [] });
    await clock.advance('15 seconds');
    expect(await heartbeat(worker)).toEqual({ alive: false });
  });

  it('is told after five seconds what it was given and has not named, and may put it back', async () => {
    const worker = await scene.register('host-1');
    await queue.enqueueMany(db, 'quote', ['A', 'B']);
    const known = await queue.claim(db, { worker, limit: 1 });
    const { request: unheard } = await queue.claim(db, { worker, limit: 1 });
    await clock.advance('4 seconds');
    expect(await heartbeat(worker, known.request)).toEqual({ alive: true, stranded: [] });
    await clock.advance('2 seconds');
    expect(await heartbeat(worker, known.request)).toEqual({ alive: true, stranded: [unheard] });
    expect(await scene.claim()).toEqual([]);
    expect(await scene.value('pgfresh_engine.release_claim($1::bigint, $2::uuid)', [worker, unheard])).toBe(1);
    expect(await heartbeat(worker, known.request)).toEqual({ alive: true, stranded: [] });
    expect(await scene.claim()).toMatchObject([{ key: 'B', attempt: 2, retries: 0 }]);
    expect(await scene.complete(known.jobs)).toHaveLength(1);
  });

  it('puts everything back when it retires', async () => {
    const worker = await scene.register('host-1');
    await queue.enqueueMany(db, 'quote', ['A', 'B']);
    await scene.claim();
    expect(await scene.value('pgfresh_engine.retire_process($1::bigint)', [worker])).toBe(2);
    await scene.register('host-2');
    expect(await scene.value('select max(lost) from pgfresh_engine.open_jobs')).toBe(0);
    expect(await scene.claim()).toHaveLength(2);
  });

  it('leaves what somebody has locked to recovery when it retires', async () => {
    const worker = await scene.register('host-1');
    await queue.enqueueMany(db, 'quote', ['A', 'B']);
    const [held] = await scene.claim();
    await db.query('update pgfresh_engine.process set idle = true');
    await db.transact('hold a job', async (tx) => {
      await tx.query('select from pgfresh_engine.job where id = $1::bigint for update', [held!.id]);
      expect(await scene.value('pgfresh_engine.retire_process($1::bigint)', [worker])).toBe(1);
    });
    // It cannot come to life again, nor is it taken for one that waits for work.
    expect(await heartbeat(worker)).toEqual({ alive: false });
    expect(await scene.value('select bool_or(idle) from pgfresh_engine.process')).toBe(false);
    await pass(1);
    await scene.register('host-2');
    expect(await scene.claim()).toHaveLength(2);
    expect(
      await scene.value('select count(*)::int from pgfresh_engine.claim where worker = $1::bigint', [worker]),
    ).toBe(0);
    expect(await scene.value('select count(*)::int from pgfresh_engine.process where id = $1::bigint', [worker])).toBe(
      0,
    );
  });
});

it('a claim that was on its way while its worker retired is taken back', async () => {
  const worker = await scene.register('host-1');
  await queue.enqueue(db, 'quote', 'A');
  await db.transact('claim late', async (tx) => {
    expect((await queue.claim(tx, { worker, limit: 1 })).jobs).toHaveLength(1);
    expect(await scene.value('pgfresh_engine.retire_process($1::bigint)', [worker])).toBe(0);
  });
  expect(await scene.value('select count(*)::int from pgfresh_engine.process')).toBe(0);
  expect(await recover()).toMatchObject({ lost: 1 });
  expect(await scene.value('select count(*)::int from pgfresh_engine.claim')).toBe(0);
  await scene.register('host-2');
  expect(await scene.claim()).toMatchObject([{ key: 'A', attempt: 2 }]);
});

describe('a job without progress', () => {
  it('is taken back after its maximum, although its worker lives', async () => {
    await scene.register('host-1');
    await db.query(`update pgfresh_engine.process set lease_until = 'infinity'`);
    await queue.enqueueMany(db, 'quote', ['silent', 'busy']);
    const [busy, silent] = await scene.claim();
    await pass(200);
    expect(await scene.value('pgfresh.heartbeat_jobs(array[$1::bigint])', [busy!.id])).toEqual([busy!.id]);
    await pass(101);
    expect(await db.query('select key, status, error_message from pgfresh_engine.open_jobs order by id')).toEqual([
      { key: 'busy', status: 'running', error_message: null },
      {
        key: 'silent',
        status: 'pending',
        error_message: expect.stringMatching(/^no progress for its maximum, held by .+$/) as string,
      },
    ]);
    expect(
      await scene.value('pgfresh.heartbeat_jobs(array[$1::bigint], array[$2::int])', [silent!.id, silent!.attempt]),
    ).toEqual([]);
  });

  it('has the maximum of its own data type', async () => {
    await scene.type('hasty', 'market');
    await scene.type('patient', 'market');
    await db.query(`update pgfresh.data_type_registry set max_run = '10 seconds' where data_type = 'hasty'`);
    await db.query(`update pgfresh.data_type_registry set max_run = '1 hour' where data_type = 'patient'`);
    onTestFinished(async () => {
      await db.query(`delete from pgfresh.data_type_registry where data_type in ('hasty', 'patient')`);
    });
    for (const type of ['quote', 'hasty', 'patient']) await queue.enqueue(db, type, 'A');
    await db.query('select pgfresh.get_queue_batch(3)');
    const taken = async () => {
      const stuck = await db.query<{ data_type: string }>('select data_type from pgfresh.stuck_jobs');
      expect(await recover()).toMatchObject({ silent: stuck.length });
      return stuck.map((job) => job.data_type);
    };
    await clock.advance('10 seconds');
    expect(await taken()).toEqual([]);
    await clock.advance('1 second');
    expect(await taken()).toEqual(['hasty']);
    await clock.advance('290 seconds');
    expect(await taken()).toEqual(['quote']);
    await clock.advance('1 hour');
    expect(await taken()).toEqual(['patient']);
  });

  it('is one of at most so many that are taken back at once', async () => {
    await queue.enqueueMany(db, 'quote', ['A', 'B', 'C']);
    await db.query('select pgfresh.get_queue_batch(3)');
    await clock.advance('301 seconds');
    const some = () => scene.value(`pgfresh.recover_stuck_jobs('1 day', 2)`);
    expect([await some(), await some()]).toMatchObject([{ silent: 2 }, { silent: 1 }]);
  });

  it('is taken over by the next one who asks for a job', async () => {
    await queue.enqueue(db, 'quote', 'A');
    const first = await scene.value<{ id: number }>('pgfresh.claim_next_pending_job()');
    expect(await scene.value('pgfresh.claim_next_pending_job()')).toBeNull();
    expect(await scene.value('select count(*)::int from pgfresh.stuck_jobs')).toBe(0);
    await clock.advance('301 seconds');
    expect(await scene.value('select count(*)::int from pgfresh.stuck_jobs')).toBe(1);
    expect(await scene.value('pgfresh.claim_next_pending_job()')).toMatchObject({ id: first.id, attempt: 2 });
  });
});

describe('recovery', () => {
  it('waits one more lease after the database was away', async () => {
    const worker = await scene.register('host-1');
    await queue.enqueue(db, 'quote', 'A');
    const job = await scene.claimOne();
    await clock.advance('60 seconds');
    expect(await recover('10 seconds')).toMatchObject({ leases_trusted: false, lost: 0 });
    // The worker comes back and finds its lease ended, but its job is still its own.
    expect(await heartbeat(worker)).toEqual({ alive: false });
    expect(await scene.complete([job])).toHaveLength(1);
  });

  it('then takes the jobs of those that have not come back', async () => {
    await scene.register('host-1');
    await queue.enqueue(db, 'quote', 'A');
    await scene.claimOne();
    await clock.advance('60 seconds');
    expect(await recover('10 seconds')).toMatchObject({ leases_trusted: false, lost: 0 });
    await pass(10);
    await clock.advance('5 seconds');
    expect(await recover('10 seconds')).toMatchObject({ leases_trusted: true, lost: 1 });
  });

  it('waits one more lease after the server has just started', async () => {
    const started = Number(await scene.value<Date>('pg_postmaster_start_time()'));
    const recoverAt = async (ms: number) => {
      await clock.set(new Date(started + ms));
      return recover('1 day');
    };
    onTestFinished(async () => void (await clock.set('2026-01-05T12:00:00Z')));
    await clock.set(new Date(started));
    await db.query('update pgfresh_engine.recovery set ran_at = pgfresh.clock()');
    await scene.register('host-1');
    await queue.enqueue(db, 'quote', 'A');
    await scene.claimOne();
    expect(await recoverAt(15_000)).toMatchObject({ leases_trusted: false, lost: 0 });
    expect(await recoverAt(29_999)).toMatchObject({ leases_trusted: false, lost: 0 });
    expect(await recoverAt(30_000)).toMatchObject({ leases_trusted: true, lost: 1 });
  });

  it('runs once at a time, and the second does not wait', async () => {
    await db.transact('holder', async (tx) => {
      await tx.query('select * from pgfresh_engine.recovery for update');
      expect(await recover()).toEqual({ skipped: true, reason: 'locked' });
    });
  });

  it('leaves no claims behind', async () => {
    await queue.enqueueMany(db, 'quote', ['A', 'B']);
    for (const { id } of await scene.value<{ id: number }[]>('pgfresh.get_queue_batch(2)')) {
      await db.query('select pgfresh.complete_queue_job($1::bigint, 0)', [id]);
    }
    expect(await scene.value('select count(*)::int from pgfresh_engine.claim')).toBe(1);
    await pass(65);
    expect(await scene.value('select count(*)::int from pgfresh_engine.claim')).toBe(0);
  });
});
