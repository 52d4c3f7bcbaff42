import { expect, it, onTestFinished } from 'vitest';
import { WorkerLease } from '../../src/queue/index.ts';
import { QueueScene } from './scene.ts';

const scene = await QueueScene.open();
const { db, queue } = scene;

/** A lease whose renewals a test triggers itself, unless it says how often: its timer does not come into play. */
async function lease(renewEveryMs?: number): Promise<WorkerLease> {
  const worker = new WorkerLease(db, 'host-1', renewEveryMs);
  onTestFinished(() => worker.stop());
  await worker.start();
  return worker;
}

it('is a number with a lease, and is gone with what it holds when it stops', async () => {
  const worker = await lease();
  expect(await scene.value('select name from pgfresh.worker where id = $1::bigint', [worker.id])).toBe('host-1');
  await queue.enqueueMany(db, 'quote', ['A', 'B']);
  const claim = await queue.claim(db, { worker: worker.id, limit: 2 });
  worker.hold(claim);
  await worker.stop();
  expect(await scene.value('select count(*)::int from pgfresh.worker where id = $1::bigint', [worker.id])).toBe(0);
  expect(await scene.value(`select count(*)::int from pgfresh.open_jobs where status = 'pending'`)).toBe(2);
  await db.query(`select pgfresh.cancel_queue_jobs(p_data_type => 'quote')`);
});

it('names the claims whose jobs have not all ended as known, and no others', async () => {
  const worker = await lease();
  await queue.enqueueMany(db, 'quote', ['A', 'B', 'C']);
  const first = await queue.claim(db, { worker: worker.id, limit: 2 });
  const second = await queue.claim(db, { worker: worker.id, limit: 1 });
  worker.hold(first);
  worker.hold(second);
  worker.hold({ request: '00000000-0000-0000-0000-000000000000', jobs: [] });
  expect(worker.known).toEqual([first.request, second.request]);
  worker.ended(first.request, 1);
  worker.ended(second.request, 1);
  expect(worker.known).toEqual([first.request]);
  worker.ended(first.request, 1);
  expect(worker.known).toEqual([]);
});

it('renews itself', async () => {
  const worker = await lease(1);
  const until = async () =>
    Number(await scene.value<Date>('select lease_until from pgfresh.worker where id = $1::bigint', [worker.id]));
  const first = await until();
  while ((await until()) === first);
});

it('keeps what it knows of when it renews, and nothing else', async () => {
  await db.query(`select pgfresh.cancel_queue_jobs(p_data_type => 'quote')`);
  const worker = await lease();
  await queue.enqueueMany(db, 'quote', ['known', 'unheard of']);
  worker.hold(await queue.claim(db, { worker: worker.id, limit: 1 }));
  await queue.claim(db, { worker: worker.id, limit: 1 });
  await db.query(`update pgfresh.claim set claimed_at = claimed_at - interval '10 seconds'`);
  await worker.renew();
  expect(await db.query('select key, status from pgfresh.open_jobs order by id')).toEqual([
    { key: 'known', status: 'running' },
    { key: 'unheard of', status: 'pending' },
  ]);
});

it('outlives a renewal that fails', async () => {
  const worker = await lease();
  await db.query('alter function pgfresh.heartbeat_worker rename to away');
  await worker.renew();
  await db.query('alter function pgfresh.away rename to heartbeat_worker');
  expect(worker.lost.aborted).toBe(false);
  await worker.renew();
  expect(worker.lost.aborted).toBe(false);
});

it('says when it is lost', async () => {
  const worker = await lease();
  await db.query(`update pgfresh.worker set lease_until = pgfresh.clock() where id = $1::bigint`, [worker.id]);
  expect(worker.lost.aborted).toBe(false);
  await worker.renew();
  expect(worker.lost.aborted).toBe(true);
});
