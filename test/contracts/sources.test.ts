import { gzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import type { CallFailed, HttpAnswer } from '../../src/sources/index.ts';
import { QueueScene } from '../queue/scene.ts';
import { answer, chunked, RawServer } from '../sources/raw-server.ts';
import { ClientScene } from '../sources/scene.ts';

it('contract 06a: the ledger is what the provider sent, whatever it sends', async () => {
  const body = JSON.stringify(Array.from({ length: 400 }, (_, n) => ({ n, price: n * 1.5 })));
  const packed = gzipSync(body);
  const inChunks = { 'content-length': undefined, 'transfer-encoding': 'chunked' };
  const answers: Readonly<Record<string, { readonly bytes: Buffer; readonly outcome?: string; readonly end?: true }>> =
    {
      PLAIN: { bytes: answer(body) },
      GZIP: { bytes: answer(packed, { 'content-encoding': 'gzip' }) },
      CHUNKED: { bytes: answer(chunked(body.slice(0, 50), body.slice(50)), inChunks) },
      BOTH: { bytes: answer(chunked(packed), { ...inChunks, 'content-encoding': 'gzip' }) },
      MOVED: { bytes: answer('', { location: '/PLAIN' }, '307 Temporary Redirect') },
      SHORT: { bytes: answer(body, { 'content-length': body.length + 10 }), outcome: 'network', end: true },
      LONG: { bytes: answer(body, { 'content-length': body.length - 10 }), outcome: 'network' },
      CUT: { bytes: answer(packed, { 'content-encoding': 'gzip' }).subarray(0, -9), outcome: 'network', end: true },
      OTHER: { bytes: answer(packed, { 'content-encoding': 'br' }), outcome: 'network' },
      LIMITED: {
        bytes: answer('{"wait":true}', { 'retry-after': 1 }, '429 Too Many Requests'),
        outcome: 'rate_limited',
      },
      BROKEN: { bytes: answer('oops', {}, '500 Internal Server Error'), outcome: 'http_5xx' },
    };
  const provider = await RawServer.start(({ path, socket }) => {
    const { bytes, end } = answers[path.slice(1)]!;
    return end ? void socket.end(bytes) : bytes;
  });
  const source = ClientScene.of(provider, { cacheEntries: 0 });
  const scene = await QueueScene.open();
  await scene.queue.enqueueMany(scene.db, 'quote', Object.keys(answers));

  for (const { id, attempt, request, key } of await scene.claim()) {
    const result = await source.call(`/${key}`, { key }).catch((error: unknown) => error as HttpAnswer | CallFailed);
    const ends = [{ id, attempt, request, bytes: result.wireBytes }];
    const outcome = 'outcome' in result ? result.outcome : undefined;
    expect({ key, outcome }).toEqual({ key, outcome: answers[key]!.outcome });
    if (outcome === undefined) await scene.queue.complete(scene.db, ends);
    else await scene.queue.fail(scene.db, ends, { permanent: true, outcome });
  }
  expect(provider.requests).toHaveLength(Object.keys(answers).length + 1);
  expect(await scene.value('select sum(data_size_bytes)::int from pgfresh.api_data_usage')).toBe(provider.bytesSent);
  // That some do not say how long they are is told once.
  expect(source.warnings).toMatchObject([{ code: 'answer_without_length', subject: 'market' }]);
});
