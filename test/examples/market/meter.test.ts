import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, it, test } from 'vitest';
import { apiKey, ProviderScene } from './scene.ts';

test.each([
  ['an answer', '/v1/quote/AAPL', [], 'GET'],
  ['a packed one', '/v1/financial-statements/AAPL', ['accept-encoding: gzip'], 'GET'],
  ['one without a body', '/v1/quote/AAPL', [], 'HEAD'],
  ['a refusal', '/v1/quote/NOPE', [], 'GET'],
])('the bytes of %s are those that came through the socket', async (_name, path, headers, method) => {
  const scene = await ProviderScene.open();
  const read = await scene.raw(path, headers, method);
  const calls = await scene.calls();
  expect(calls).toMatchObject([{ bytes: read.length }]);
});

test.each([
  'error_500',
  'limited',
  'html_page',
  'double_gzip',
  'length_too_short',
  'length_never_filled',
  'cut_chunks',
  'not_http',
  'huge_headers',
  'huge_body',
  'hang_up',
])('the bytes of the fault %s are those that came through the socket', async (kind) => {
  const scene = await ProviderScene.open();
  await scene.admin('POST', '/faults', { kind });
  const read = await scene.raw('/v1/quote/AAPL');
  const calls = await scene.calls();
  expect(calls).toMatchObject([{ bytes: read.length, fault: kind }]);
});

it('counts each call of a connection that is kept, and leaves admin routes out', async () => {
  const scene = await ProviderScene.open();
  const socket = connect(Number(new URL(scene.url).port), '127.0.0.1').setEncoding('latin1');
  let read = '';
  socket.on('data', (chunk: string) => (read += chunk));
  const asked = ['/v1/quote/AAPL', '/admin/meter', '/v1/profile/AAPL', '/v1/nothing', '/v1/quote/MSFT'];
  const sizes: number[] = [];
  for (const path of asked) {
    const before = read.length;
    socket.write(`GET ${path} HTTP/1.1\r\nhost: provider\r\nx-api-key: ${apiKey}\r\n\r\n`);
    const isWhole = () => {
      const answer = read.slice(before);
      const head = answer.indexOf('\r\n\r\n');
      return head > 0 && answer.length === head + 4 + Number(/content-length: (\d+)/.exec(answer)![1]);
    };
    while (!isWhole()) await once(socket, 'data');
    sizes.push(read.length - before);
  }
  socket.destroy();
  const calls = await scene.calls();
  expect(calls.map(({ route, symbol, status, bytes }) => [route, symbol, status, bytes])).toEqual([
    ['quote', 'AAPL', 200, sizes[0]],
    ['profile', 'AAPL', 200, sizes[2]],
    ['', null, 404, sizes[3]],
    ['quote', 'MSFT', 200, sizes[4]],
  ]);
  const body = await scene.report();
  expect(body.bytes).toBe(sizes[0]! + sizes[2]! + sizes[3]! + sizes[4]!);
  expect(body.keys).toEqual({
    [apiKey]: {
      calls: 4,
      bytes: body.bytes,
      busiestMinute: 4,
      routes: {
        quote: { calls: 2, bytes: sizes[0]! + sizes[4]! },
        profile: { calls: 1, bytes: sizes[2] },
        '': { calls: 1, bytes: sizes[3] },
      },
    },
  });
});

it('counts what comes at once on one connection', async () => {
  const scene = await ProviderScene.open();
  const socket = connect(Number(new URL(scene.url).port), '127.0.0.1').setEncoding('latin1');
  let read = '';
  socket.on('data', (chunk: string) => (read += chunk));
  const request = (end: string) =>
    `GET /v1/quote/AAPL HTTP/1.1\r\nhost: provider\r\nx-api-key: ${apiKey}\r\n${end}\r\n`;
  socket.write(request('').repeat(9) + request('connection: close\r\n'));
  await once(socket, 'close');
  const body = await scene.report();
  expect(body).toMatchObject({ calls: 10, bytes: read.length });
});

it('knows the busiest minute, and starts anew when it is told to', async () => {
  const scene = await ProviderScene.open({ keys: [apiKey, 'another'] });
  for (const pause of [0, 30_000, 29_999, 1, 40_000, 90_000]) {
    scene.time.now += pause;
    await (await scene.get('/v1/quote/AAPL')).arrayBuffer();
  }
  await (await scene.get('/v1/quote/AAPL', { key: 'another' })).arrayBuffer();
  const { keys } = await scene.report();
  expect([keys[apiKey]!.busiestMinute, keys['another']!.busiestMinute]).toEqual([3, 1]);
  expect((await scene.admin('DELETE', '/meter')).body).toEqual({ calls: 0, bytes: 0, open: 0, keys: {} });
});
