import type { ServerResponse } from 'node:http';
import { expect, it } from 'vitest';
import { quoteType, RefreshScene } from '../refresh/scene.ts';
import { startWorker, until } from './scene.ts';

it('with a quota that is nearly used makes the calls that fit, and no other', async () => {
  const large = quoteType({ name: 'large', request: (key) => ({ url: `/large/${key}` }) });
  const free = quoteType({ name: 'free', source: 'unlimited' });
  const scene = await RefreshScene.open([quoteType(), large, free], ['unlimited']);
  const { db, provider } = scene;
  await db.query(
    `update pgfresh.sources set quota_bytes = 1000000, quota_buffer = 0.95, quota_window = '1 day' where name = 'market'`,
  );
  await db.query(`insert into pgfresh.usage_corrections (source, bytes, reason) values ('market', 940500, 'test')`);
  const keys = Array.from({ length: 30 }, (_, n) => `K${n}`);
  const waiting: (() => void)[] = [];
  let sent = 0;
  const answer = (response: ServerResponse, symbol: string): void => {
    const body = JSON.stringify({ symbol, price: 1, at: '2026-01-05T12:00:00Z' });
    const { socket } = response;
    const before = socket!.bytesWritten;
    response.on('finish', () => (sent += socket!.bytesWritten - before));
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length }).end(body);
  };
  for (const key of keys)
    provider.answers.set(`/quote/${key}`, (_request, response) => waiting.push(() => answer(response, key)));
  scene.quote('FREE', 1);
  await db.query(`select count(*) from pgfresh_engine.queue_refreshes('large', array['L'], 500, 50000)`);
  await db.query(`select count(*) from pgfresh_engine.queue_refreshes('quote', $1::text[], 1, 1000)`, [keys]);
  const worker = await startWorker(scene);
  const claimedAgain = async (): Promise<void> => {
    const ended = Promise.withResolvers<void>();
    const unsubscribe = scene.events.on('refresh.ended', ({ key }) => void (key === 'FREE' && ended.resolve()));
    await scene.enqueue('free', ['FREE']);
    await ended.promise;
    unsubscribe();
  };
  const within = () =>
    scene.value<boolean>(
      `select used + reserved <= cap from pgfresh_engine.source_budget((select id from pgfresh.sources where name = 'market'))`,
    );

  // 9,500 bytes are left.
  await until(() => waiting.length === 9);
  await claimedAgain();
  expect(waiting).toHaveLength(9);
  expect(await within()).toBe(true);

  // What cost less than its estimate makes room for others, until less than one estimate is left.
  while (waiting.length > 0) {
    for (const go of waiting.splice(0)) go();
    await until(
      async () =>
        (await scene.value(`select count(*)::int from pgfresh_engine.job where state = 'x'`)) === 0 ||
        waiting.length > 0,
    );
    await claimedAgain();
    // What was claimed meanwhile is on its way to the provider.
    await until(
      async () =>
        (await scene.value(`select count(*)::int from pgfresh_engine.job where state = 'x'`)) === waiting.length,
    );
    expect(await within()).toBe(true);
  }
  const done = await scene.value<number>(
    `select count(*)::int from pgfresh_engine.history_succeeded as h join pgfresh.data_type_registry using (type_id) where data_type = 'quote'`,
  );
  expect(done).toBeGreaterThan(20);
  const used = await scene.value<number>(
    `select sum(bytes)::int - 940500 from pgfresh_engine.usage join pgfresh.sources on id = source_id where name = 'market'`,
  );
  expect(used).toBe(sent);
  if (done < 30) expect(used + 1_000).toBeGreaterThan(9_500);
  expect(provider.asked).not.toContain('/large/L');
  expect(await scene.value(`select status from pgfresh_engine.open_jobs where key = 'L'`)).toBe('pending');
  await worker.stop();
});
