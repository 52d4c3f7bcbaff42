import { expect, it, onTestFinished } from 'vitest';
import { Proxy } from '../harness/proxy.ts';
import { quoteType, RefreshScene } from '../refresh/scene.ts';
import { drained, startWorker, until } from './scene.ts';

const ours = `(select max(id) from pgfresh_engine.process where name <> 'test')`;
const ageClaims = `update pgfresh_engine.claim set claimed_at = claimed_at - interval '10 seconds'`;
const endedOf = (scene: RefreshScene) => scene.seen.filter((event) => event.type === 'refresh.ended');

/** Settles when the worker has renewed its lease so many times more. */
async function renewals(scene: RefreshScene, count: number): Promise<void> {
  const renewedAt = () => scene.value<string>(`select renewed_at::text from pgfresh_engine.process where id = ${ours}`);
  for (let seen = 0; seen < count; seen++) {
    const before = await renewedAt();
    await until(async () => (await renewedAt()) !== before);
  }
}

it('runs 3: a renewal that was on its way for long puts back no job that was claimed since', async () => {
  const scene = await RefreshScene.open();
  const { proxy, url } = await Proxy.before(scene.url);
  onTestFinished(() => proxy.close());
  const asked = Promise.withResolvers<() => void>();
  scene.provider.answers.set('/quote/SLOW', (request, response) => {
    scene.quote('SLOW', 1);
    const answer = scene.provider.answers.get('/quote/SLOW')!;
    asked.resolve(() => answer(request, response));
  });
  const worker = await startWorker(scene, { db: scene.db, url });
  let isHeld = false;
  proxy.judge = (chunk) => {
    isHeld ||= chunk.includes('heartbeat_process');
    return isHeld ? 'hold' : 'pass';
  };
  await until(() => isHeld);
  await scene.enqueue('quote', ['SLOW']);
  const answer = await asked.promise;
  await scene.db.query(ageClaims);
  proxy.judge = () => 'pass';
  proxy.release();
  // By the second renewal, what the first one asked for was done.
  await renewals(scene, 2);
  expect(await scene.db.query('select status, attempts from pgfresh.api_call_queue')).toEqual([
    { status: 'running', attempts: 1 },
  ]);
  answer();
  await drained(scene);
  expect(scene.provider.asked).toEqual(['/quote/SLOW']);
  await worker.stop();
});

it('runs 3: what a worker was given and never heard of is put back, and done', async () => {
  const scene = await RefreshScene.open([quoteType()]);
  const worker = await startWorker(scene);
  scene.quote('A', 1);
  await scene.db.transact('claim in its name', async (tx) => {
    await scene.queue.enqueue(tx, 'quote', 'A');
    const id = await scene.value<number>(`select ${ours}`);
    expect((await scene.queue.claim(tx, { worker: id, limit: 1 })).jobs).toHaveLength(1);
    await tx.query(ageClaims);
  });
  await drained(scene);
  expect(scene.provider.asked).toEqual(['/quote/A']);
  await worker.stop();
});

it('runs 4: a worker that has lost its lease begins no call under it', async () => {
  const requests: string[] = [];
  const request = async (key: string) => {
    requests.push(key);
    if (requests.length === 1) {
      // No one takes back what was held, so that only the worker itself could do it.
      await scene.db.query(
        `update pgfresh_engine.recovery set ran_at = pgfresh.clock(), trust_leases_from = 'infinity'`,
      );
      await scene.db.query(`update pgfresh_engine.process set lease_until = '-infinity' where id = ${ours}`);
      await until(() => scene.seen.some(({ type }) => type === 'worker.lease_lost'));
    }
    return { url: `/quote/${key}` };
  };
  const scene = await RefreshScene.open([quoteType({ request })]);
  scene.quote('A', 1);
  const worker = await startWorker(scene);
  await scene.enqueue('quote', ['A']);
  await drained(scene);
  expect(endedOf(scene)).toMatchObject([
    { outcome: 'interrupted', calls: 0 },
    { outcome: 'fresh', calls: 1 },
  ]);
  expect(scene.provider.asked).toEqual(['/quote/A']);
  await worker.stop();
});
