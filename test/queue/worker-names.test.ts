import { beforeEach, describe, expect, it } from 'vitest';
import { freezeClock } from '../harness/clock.ts';
import { openSession } from '../harness/session.ts';
import { QueueScene } from './scene.ts';

let scene: QueueScene;
let clock: Awaited<ReturnType<typeof freezeClock>>;
beforeEach(async () => {
  scene = await QueueScene.open();
  clock = await freezeClock(scene.db);
  await scene.db.query('truncate pgfresh_engine.process, pgfresh_engine.worker_name cascade');
});

const start = new Date('2026-01-05T12:00:00Z');
const after = (seconds: number): Date => new Date(start.getTime() + seconds * 1_000);
const names = () => scene.value<string[]>('array(select name from pgfresh_engine.worker_name order by id)');

describe('who holds a job', () => {
  it('truth 13: a job of an SQL client is locked by the name that the claim was given', async () => {
    await scene.queue.enqueueMany(scene.db, 'quote', ['A', 'B']);
    const [first] = await scene.value<{ id: number }[]>(`pgfresh.get_queue_batch(1, p_worker => 'etl 7')`);
    const second = await scene.value<{ id: number }>(`pgfresh.claim_next_pending_job('loader')`);
    expect([await scene.job(first!.id), await scene.job(second.id)]).toMatchObject([
      { status: 'running', locked_by: 'etl 7', locked_at: start, heartbeat_at: start },
      { status: 'running', locked_by: 'loader', locked_at: start, heartbeat_at: start },
    ]);
    await scene.db.query('select pgfresh.complete_queue_job($1::bigint, 1)', [first!.id]);
    await scene.db.query(`select pgfresh.fail_queue_job($1::bigint, 'no', null, true)`, [second.id]);
    expect([await scene.job(first!.id), await scene.job(second.id)]).toMatchObject([
      { status: 'succeeded', locked_by: 'etl 7' },
      { status: 'failed', locked_by: 'loader' },
    ]);
  });

  it('truth 13: without a name, an SQL client is known by its application, or by its user, and its process', async () => {
    await scene.queue.enqueueMany(scene.db, 'quote', ['A', 'B']);
    const session = await openSession(scene.url);
    const [{ pid, login }] = (await session.query('select pg_backend_pid() as pid, session_user as login')) as [
      { pid: number; login: string },
    ];
    const claim = async () => {
      const [row] = await session.query<{ id: number }>(
        `select (pgfresh.claim_next_pending_job() ->> 'id')::bigint as id`,
      );
      return (await scene.job(row!.id))!['locked_by'];
    };
    expect(await claim()).toBe(`pgfresh test:${pid}`);
    await session.query(`set application_name = ''`);
    expect(await claim()).toBe(`${login}:${pid}`);
  });

  it('truth 13: an SQL client is one name however often it claims, and an empty claim writes none', async () => {
    for (const key of ['A', 'B', 'C']) {
      await scene.db.query(`select pgfresh.claim_next_pending_job('nobody')`);
      await scene.queue.enqueue(scene.db, 'quote', key);
      const job = await scene.value<{ id: number; key: string }>(`pgfresh.claim_next_pending_job('etl')`);
      expect(job.key).toBe(key);
      await scene.db.query('select pgfresh.complete_queue_job($1::bigint, 1)', [job.id]);
      await clock.advance('61 minutes');
    }
    expect(await names()).toEqual(['etl']);
    expect(await scene.value('(select last_seen_at from pgfresh_engine.worker_name)')).toEqual(after(2 * 61 * 60));
  });

  it('truth 13: two clients of one new name do not wait for each other', async () => {
    await scene.queue.enqueueMany(scene.db, 'quote', ['A', 'B']);
    await scene.db.transact('first', async (tx) => {
      await tx.query(`select pgfresh.claim_next_pending_job('etl')`);
      expect(await scene.value(`pgfresh.claim_next_pending_job('etl')`)).toMatchObject({ key: 'B' });
    });
    expect(await scene.db.query('select distinct locked_by from pgfresh_engine.open_jobs')).toEqual([
      { locked_by: 'etl' },
    ]);
  });

  it('truth 13: the name of a worker is kept after it has retired or died, as long as the history', async () => {
    const ended: number[] = [];
    for (const name of ['retires', 'dies']) {
      const worker = await scene.register(name);
      await scene.queue.enqueue(scene.db, 'quote', name);
      const job = await scene.claimOne();
      expect(await scene.job(job.id)).toMatchObject({ locked_by: name });
      await scene.complete([job]);
      ended.push(job.id);
      if (name === 'retires') await scene.db.query('select pgfresh_engine.retire_process($1::bigint)', [worker]);
    }
    await clock.advance('12 seconds');
    await scene.db.query(`select pgfresh.recover_stuck_jobs('1 day')`);
    expect(await scene.value('(select count(*) from pgfresh_engine.process)')).toBe(0);
    await clock.advance('30 days');
    await scene.db.query(`select pgfresh.recover_stuck_jobs('1 day'), pgfresh.maintain_queue_partitions(30, 30)`);
    const locked = async () => Promise.all(ended.map(async (id) => (await scene.job(id))?.['locked_by']));
    expect(await locked()).toEqual(['retires', 'dies']);
    await clock.advance('3 days');
    const living = await scene.register('lives');
    await scene.db.query('update pgfresh_engine.worker_name set last_seen_at = $2 where id = $1::bigint', [
      living,
      start,
    ]);
    await scene.db.query('select pgfresh.maintain_queue_partitions(30, 30)');
    expect(await names()).toEqual(['lives']);
  });

  it('truth 13: a job that was lost says by whose name', async () => {
    await scene.register('host:7');
    await scene.queue.enqueueMany(scene.db, 'quote', ['A', 'B']);
    await scene.claimOne();
    await scene.db.query(`select pgfresh.get_queue_batch(1, p_worker => 'etl')`);
    await clock.advance('301 seconds');
    await scene.db.query(`select pgfresh.recover_stuck_jobs('1 day')`);
    expect(
      await scene.db.query('select key, error_message, locked_by from pgfresh_engine.open_jobs order by key'),
    ).toEqual([
      { key: 'A', error_message: 'worker host:7 is gone', locked_by: null },
      { key: 'B', error_message: 'no progress for its maximum, held by etl', locked_by: null },
    ]);
  });
});

describe('the sign of life', () => {
  const stuck = () =>
    scene.db.query<Record<string, unknown>>(
      `select key, lease_until, extract(epoch from time_since_heartbeat)::int as silent from pgfresh.stuck_jobs order by key`,
    );

  it('truth 13: heartbeat_at of a worker’s job is that of its lease, and lease_until says when it is taken back', async () => {
    const worker = await scene.register('host:7');
    await scene.queue.enqueue(scene.db, 'quote', 'A');
    const { jobs, request } = await scene.queue.claim(scene.db, { worker, limit: 1 });
    for (let beat = 1; beat <= 20; beat++) {
      await clock.advance('5 seconds');
      await scene.db.query('select pgfresh_engine.heartbeat_process($1::bigint, array[$2::uuid])', [worker, request]);
    }
    expect(await scene.job(jobs[0]!.id)).toMatchObject({ locked_at: start, heartbeat_at: after(100) });
    expect(await scene.value('(select lease_until from pgfresh_engine.open_jobs)')).toEqual(after(112));
    await clock.advance('20 seconds');
    expect(await stuck()).toEqual([{ key: 'A', lease_until: after(112), silent: 20 }]);
  });

  it('truth 13: a job that makes no progress is shown with its own silence, not with the heartbeat of its worker', async () => {
    const worker = await scene.register('host:7');
    await scene.queue.enqueue(scene.db, 'quote', 'A');
    const { request } = await scene.queue.claim(scene.db, { worker, limit: 1 });
    for (let beat = 1; beat <= 61; beat++) {
      await clock.advance('5 seconds');
      await scene.db.query('select pgfresh_engine.heartbeat_process($1::bigint, array[$2::uuid])', [worker, request]);
    }
    expect(await stuck()).toEqual([{ key: 'A', lease_until: after(300), silent: 305 }]);
  });

  it('truth 13: of an SQL client it is the claim, or the last heartbeat_jobs', async () => {
    await scene.queue.enqueueMany(scene.db, 'quote', ['A', 'B']);
    const [first] = await scene.value<{ id: number }[]>('pgfresh.get_queue_batch(2)');
    await clock.advance('200 seconds');
    await scene.db.query('select pgfresh.heartbeat_jobs(array[$1::bigint])', [first!.id]);
    expect(
      await scene.db.query('select key, heartbeat_at, lease_until from pgfresh_engine.open_jobs order by key'),
    ).toEqual([
      { key: 'A', heartbeat_at: after(200), lease_until: after(500) },
      { key: 'B', heartbeat_at: start, lease_until: after(300) },
    ]);
    await clock.advance('101 seconds');
    expect(await stuck()).toEqual([{ key: 'B', lease_until: after(300), silent: 301 }]);
  });
});
