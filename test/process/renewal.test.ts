import { expect, it, onTestFinished } from 'vitest';
import { Renewal } from '../../src/process/index.ts';
import { workerRegistration, type Claim } from '../../src/queue/index.ts';
import { QueueScene } from '../queue/scene.ts';

const scene = await QueueScene.open();
const { db, queue } = scene;

/** A lease whose renewals a test triggers itself, unless it says how often: its timer does not come into play. */
async function lease(options: ConstructorParameters<typeof Renewal>[2] = { renewEveryMs: 60_000 }): Promise<Renewal> {
  const worker = new Renewal(db, workerRegistration('host-1'), options);
  onTestFinished(() => worker.stop());
  await worker.start();
  return worker;
}

function hold(worker: Renewal, { request, jobs }: Claim): void {
  worker.hold(request, jobs.length);
}

it('is a number with a lease, and is gone with what it holds when it stops', async () => {
  const worker = await lease();
  expect(await scene.value('select name from pgfresh_engine.process where id = $1::bigint', [worker.id])).toBe(
    'host-1',
  );
  await queue.enqueueMany(db, 'quote', ['A', 'B']);
  const claim = await queue.claim(db, { worker: worker.id, limit: 2 });
  hold(worker, claim);
  await worker.stop();
  expect(await scene.value('select count(*)::int from pgfresh_engine.process where id = $1::bigint', [worker.id])).toBe(
    0,
  );
  expect(await scene.value(`select count(*)::int from pgfresh_engine.open_jobs where status = 'pending'`)).toBe(2);
  await db.query(`select pgfresh.cancel_queue_jobs(p_data_type => 'quote')`);
});

it('names the claims whose jobs have not all ended as known, and no others', async () => {
  const worker = await lease();
  await queue.enqueueMany(db, 'quote', ['A', 'B', 'C']);
  const first = await queue.claim(db, { worker: worker.id, limit: 2 });
  const second = await queue.claim(db, { worker: worker.id, limit: 1 });
  hold(worker, first);
  hold(worker, second);
  worker.hold('00000000-0000-0000-0000-000000000000', 0);
  expect(worker.held).toEqual([first.request, second.request]);
  worker.ended(first.request, 1);
  worker.ended(second.request, 1);
  expect(worker.held).toEqual([first.request]);
  worker.ended(first.request, 1);
  expect(worker.held).toEqual([]);
});

it('renews itself', async () => {
  const worker = await lease({ renewEveryMs: 1 });
  const until = async () =>
    Number(
      await scene.value<Date>('select lease_until from pgfresh_engine.process where id = $1::bigint', [worker.id]),
    );
  const first = await until();
  while ((await until()) === first);
});

it('is told of what it was given and does not know when it renews', async () => {
  await db.query(`select pgfresh.cancel_queue_jobs(p_data_type => 'quote')`);
  const answers: unknown[] = [];
  const worker = await lease({ renewEveryMs: 60_000, onAnswer: (answer) => void answers.push(answer) });
  await queue.enqueueMany(db, 'quote', ['known', 'unheard of']);
  hold(worker, await queue.claim(db, { worker: worker.id, limit: 1 }));
  const { request } = await queue.claim(db, { worker: worker.id, limit: 1 });
  await db.query(`update pgfresh_engine.claim set claimed_at = claimed_at - interval '10 seconds'`);
  await worker.renew();
  expect(answers).toEqual([{ alive: true, stranded: [request] }]);
});

it('outlives a renewal that fails', async () => {
  const worker = await lease();
  await db.query('alter function pgfresh_engine.heartbeat_process rename to away');
  await worker.renew();
  await db.query('alter function pgfresh_engine.away rename to heartbeat_process');
  expect(worker.lost.aborted).toBe(false);
  await worker.renew();
  expect(worker.lost.aborted).toBe(false);
});

it('says when it is lost', async () => {
  const worker = await lease();
  await db.query(`update pgfresh_engine.process set lease_until = pgfresh.clock() where id = $1::bigint`, [worker.id]);
  expect(worker.lost.aborted).toBe(false);
  await worker.renew();
  expect(worker.lost.aborted).toBe(true);
});

it('runs 4: is lost here too when the database says nothing more', async () => {
  const worker = await lease({ renewEveryMs: 50, leaseMs: 3_000 });
  await worker.renew();
  await db.query('alter function pgfresh_engine.heartbeat_process rename to away');
  expect(worker.lost.aborted).toBe(false);
  await new Promise((resolve) => worker.lost.addEventListener('abort', resolve));
  await db.query('alter function pgfresh_engine.away rename to heartbeat_process');
  // Whoever has lost it does not come back: others may have taken what it held.
  await worker.renew();
  expect(worker.lost.aborted).toBe(true);
});
