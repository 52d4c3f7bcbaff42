import { expect, it, vi } from 'vitest';
import { fenceJobs } from '../../src/refresh/ends.ts';
import { startOwnServer } from '../harness/own-server.ts';
import { QueueScene } from './scene.ts';

const claims = (scene: QueueScene) => scene.value<number>('select count(*)::int from pgfresh_engine.claim');

it('a claim that the database forgot in a crash is made again under another name, and the first one ends nothing', async () => {
  const scene = await QueueScene.open({ url: await startOwnServer(), poolSize: 1 });
  const { db, queue } = scene;
  const { jobId } = await queue.enqueue(db, 'quote', 'A');
  const crash = async () => {
    process.kill(await scene.value<number>('pg_backend_pid()'), 'SIGKILL');
    await vi.waitFor(() => claims(scene), { timeout: 20_000 });
  };

  const [forgotten] = await scene.claim({ alone: true });
  await crash();
  expect(await claims(scene)).toBe(0);
  const [kept] = await scene.claim();
  await crash();
  expect(await claims(scene)).toBe(1);

  expect(kept).toEqual({ ...forgotten!, request: kept!.request });
  expect(kept!.request).not.toBe(forgotten!.request);
  expect(await db.transact('fence', (tx) => fenceJobs(tx, kept!.type, [forgotten!]))).toMatchObject({ ours: [] });
  expect(await scene.complete([forgotten!])).toEqual([]);
  expect(await queue.fail(db, [{ ...forgotten!, bytes: 0 }], { permanent: true })).toEqual([]);
  expect(await scene.complete([kept!])).toEqual([jobId]);
});
