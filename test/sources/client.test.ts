import { createServer, type AddressInfo } from 'node:net';
import { getEventListeners, once } from 'node:events';
import { gzipSync } from 'node:zlib';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { HttpRequest, SourceDefinition } from '../../src/index.ts';
import { answer, chunked, RawServer } from './raw-server.ts';
import { ClientScene, sourceOf, textOf } from './scene.ts';

const inChunks = { 'content-length': undefined, 'transfer-encoding': 'chunked' };

/** A server that takes a request and says nothing; resolves when it has one. */
async function silent(): Promise<{ server: RawServer; asked: Promise<void> }> {
  const asked = Promise.withResolvers<void>();
  return { server: await RawServer.start(() => asked.resolve()), asked: asked.promise };
}

describe('a request', () => {
  it('is sent as it is described', async () => {
    const server = await RawServer.start(() => answer());
    const scene = ClientScene.of(server, {
      baseUrl: `${server.url}/v1/`,
      headers: { 'X-Plan': 'gold', accept: 'text/csv' },
    });
    await scene.call({
      url: '/quote?a=1',
      query: { symbol: 'BRK B', limit: 5, all: false, none: undefined },
      headers: { 'X-Plan': 'free' },
    });
    expect(server.requests[0]).toMatchObject({
      method: 'GET',
      path: '/v1/quote?a=1&symbol=BRK+B&limit=5&all=false',
      headers: { host: `127.0.0.1:${server.port}`, 'x-plan': 'free', accept: 'text/csv', 'user-agent': 'pgfresh' },
    });
  });

  it.each<[string, HttpRequest['body'], string, string | undefined]>([
    ['JSON', { symbols: ['AAPL', 'ü'] }, '{"symbols":["AAPL","ü"]}', 'application/json'],
    ['a form', new URLSearchParams({ grant: 'a b' }), 'grant=a+b', 'application/x-www-form-urlencoded'],
    ['text', 'plain', 'plain', undefined],
    ['bytes', new TextEncoder().encode('bytes'), 'bytes', undefined],
  ])('has a body of %s', async (_name, body, sent, type) => {
    const server = await RawServer.start(() => answer());
    await ClientScene.of(server).call({ method: 'POST', url: '/search', body });
    const [request] = server.requests;
    expect(Buffer.from(request!.body, 'latin1').toString()).toBe(sent);
    expect(request!.headers).toMatchObject({ 'content-length': String(Buffer.byteLength(sent)) });
    expect(request!.headers['content-type']).toBe(type);
  });

  it.each<[string, HttpRequest | string, RegExp, Partial<SourceDefinition>?]>([
    [
      'another host',
      'https://evil.example/quote',
      /evil\.example is not a host of the source: expected 127\.0\.0\.1:\d+$/,
    ],
    ['another port', 'http://127.0.0.1:1/quote', /127\.0\.0\.1:1 is not a host of the source/],
    ['no HTTP', 'file:///etc/passwd', /expected http or https, got file:/],
    ['no address', 'http://', /expected an address, or a path/],
    ['a login', 'http://me:hunter2@127.0.0.1:80/', /expected an address without a login/],
    ['a way up', '/quote/../admin', /without "\." and "\.\." in its path; encodeURIComponent/],
    ['a hidden way up', '/quote/%2E%2e/admin', /without "\." and "\.\."/],
    ['a way up the Windows way', '/quote\\..\\admin', /without "\." and "\.\."/],
    [
      'a path without a base',
      '/quote',
      /expected a baseUrl of the source/,
      { baseUrl: undefined, hosts: ['a.example'] },
    ],
    ['a source without hosts', 'https://a.example/', /the source has none; set its baseUrl/, { baseUrl: undefined }],
    ['a method that is none', { url: '/', method: 'BREW' as never }, /expected one of GET, POST, .*got BREW$/],
    ['a body for GET', { url: '/', body: {} }, /expected no body, because the method is GET/],
    ['a header of ours', { url: '/', headers: { 'Accept-Encoding': 'br' } }, /the header Accept-Encoding is not one/],
    ['a header in two lines', { url: '/', headers: { 'x-a': 'a\r\nx-b: c' } }, /Invalid character in header content/],
    ['a header that is none', { url: '/', headers: { 'x a': 'b' } }, /the header x a is not one/],
  ])('with %s is not sent', async (_name, request, message, changes = {}) => {
    const server = await RawServer.start(() => answer());
    const failed = await ClientScene.of(server, changes).fails(request);
    expect(failed).toMatchObject({ name: 'CallFailed', outcome: 'config', calls: 0, wireBytes: 0 });
    expect(failed.message).toMatch(message);
    expect(failed.message).not.toContain('hunter2');
    expect(server.connections).toBe(0);
  });

  it('may have dots that are no way', async () => {
    const server = await RawServer.start(() => answer());
    await ClientScene.of(server).call('/quote/BRK.B/..x?path=/../');
    expect(server.paths).toEqual(['/quote/BRK.B/..x?path=/../']);
  });

  it('uses a connection again, and never more than it needs', async () => {
    const server = await RawServer.start(() => answer());
    const scene = ClientScene.of(server);
    for (let n = 0; n < 5; n++) await scene.call(`/${n}`);
    expect(server).toMatchObject({ connections: 1 });
  });
});

describe('a status', () => {
  it.each<[string, Record<string, string>, object]>([
    ['400 Bad Request', {}, { outcome: 'http_4xx', status: 400 }],
    ['401 Unauthorized', {}, { outcome: 'http_4xx', status: 401 }],
    ['403 Forbidden', {}, { outcome: 'http_4xx', status: 403 }],
    [
      '403 Forbidden',
      { 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '9' },
      { outcome: 'rate_limited', retryAfterMs: 9_000 },
    ],
    ['404 Not Found', {}, { outcome: 'http_4xx', status: 404 }],
    ['404 Not Found', { 'retry-after': '3' }, { outcome: 'http_4xx', status: 404, retryAfterMs: 3_000 }],
    ['429 Too Many Requests', {}, { outcome: 'rate_limited', status: 429, retryAfterMs: undefined }],
    ['429 Too Many Requests', { 'retry-after': '7' }, { outcome: 'rate_limited', status: 429, retryAfterMs: 7_000 }],
    ['429 Too Many Requests', { 'x-ratelimit-reset': '8' }, { outcome: 'rate_limited', retryAfterMs: 8_000 }],
    ['500 Oops', {}, { outcome: 'http_5xx', status: 500 }],
    ['503 Unavailable', {}, { outcome: 'http_5xx', status: 503 }],
    ['503 Unavailable', { 'retry-after': '30' }, { outcome: 'rate_limited', status: 503, retryAfterMs: 30_000 }],
    ['599 Odd', {}, { outcome: 'http_5xx', status: 599 }],
  ])('of %s with %j', async (status, headers, expected) => {
    const bytes = answer('{"error":"no"}', headers, status);
    const server = await RawServer.start(() => bytes);
    const scene = ClientScene.of(server);
    const failed = await scene.fails();
    expect(failed).toMatchObject({ ...expected, calls: 1, wireBytes: bytes.length });
    expect(failed.message).toMatch(
      /^The call of market for quote\/AAPL \(GET http:\/\/[\d.:]+\/quote\) failed: HTTP \d+$/,
    );
    expect(textOf({ body: failed.answer! })).toBe('{"error":"no"}');
    expect(scene.events).toMatchObject([
      { type: 'source.called', source: 'market', dataType: 'quote', outcome: failed.outcome },
    ]);
  });

  it('that refuses keeps the start of a long answer', async () => {
    const server = await RawServer.start(() => answer('x'.repeat(100_000), {}, '500 Oops'));
    expect((await ClientScene.of(server).fails()).answer).toHaveLength(8_192);
  });

  it('of an answer that was the last for now says how long to wait', async () => {
    const server = await RawServer.start(() => answer('{}', { 'x-ratelimit-remaining': 0, 'x-ratelimit-reset': 20 }));
    expect(await ClientScene.of(server).call()).toMatchObject({ status: 200, retryAfterMs: 20_000 });
  });

  it('of one that says when and not what time it is, waits by the time it is told', async () => {
    const now = Date.UTC(2026, 10, 16, 12, 0, 0);
    const server = await RawServer.start(({ path }) => {
      const until = { 'retry-after': 'Mon, 16 Nov 2026 12:00:30 GMT' };
      return path === '/good' ? answer('{}', until) : answer('', until, '429 Too Many Requests');
    });
    const scene = ClientScene.of(server, {}, { now: () => now });
    expect(await scene.call('/good')).toMatchObject({ retryAfterMs: 30_000 });
    expect(await scene.fails('/bad')).toMatchObject({ outcome: 'rate_limited', retryAfterMs: 30_000 });
  });

  it('of an answer with more to come says nothing', async () => {
    const server = await RawServer.start(() => answer('{}', { 'x-ratelimit-remaining': 1, 'x-ratelimit-reset': 20 }));
    expect(await ClientScene.of(server).call()).toMatchObject({ status: 200, retryAfterMs: undefined });
  });
});

describe('time', () => {
  it('is 10 seconds unless the source says otherwise', () => {
    expect(sourceOf({}).timeout).toBe(10_000);
  });

  const packed = gzipSync(Array.from({ length: 9_000 }, (_, n) => Math.imul(n, 2_654_435_761)).join());
  it.each<[string, Buffer, Buffer]>([
    ['says nothing', Buffer.of(), Buffer.of()],
    ['trickles its headers', Buffer.from('HTTP/1.1 200 OK\r\nx-a: '), Buffer.alloc(9_000, 'x')],
    ['trickles its body', answer('', { 'content-length': 9_000 }), Buffer.alloc(9_000, 'x')],
    ['trickles chunks', answer('', inChunks), chunked(...Array.from({ length: 1_000 }, () => 'x'))],
    ['trickles without a length', answer('', { 'content-length': undefined }), Buffer.alloc(9_000, 'x')],
    ['trickles gzip', answer('', { 'content-encoding': 'gzip', 'content-length': packed.length }), packed],
  ])('ends for a source that %s', async (_name, head, rest) => {
    const server = await RawServer.start(({ socket }) => {
      socket.write(head);
      let place = 0;
      const trickle = setInterval(() => socket.write(rest.subarray(place, ++place)), 5);
      socket.once('close', () => clearInterval(trickle));
    });
    const scene = ClientScene.of(server, { timeout: 500 });
    const failed = await scene.fails();
    expect(failed).toMatchObject({ outcome: 'timeout', calls: 1 });
    expect(failed.message).toMatch(/no whole answer within 500ms$/);
    expect(failed.ms).toBeGreaterThanOrEqual(499);
    expect(failed.ms).toBeLessThan(5_000);
    // The connection goes with it.
    const { socket } = server.requests[0]!;
    // Not by once, for which the reset that comes before the close is a failure.
    if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve));
  });

  it('ends for a source that accepts no TLS', async () => {
    const deaf = createServer(() => {}).listen(0, '127.0.0.1');
    await once(deaf, 'listening');
    const sockets: { destroy(): void }[] = [];
    deaf.on('connection', (socket) => sockets.push(socket));
    onTestFinished(() => {
      for (const socket of sockets) socket.destroy();
      deaf.close();
    });
    const baseUrl = `https://127.0.0.1:${(deaf.address() as AddressInfo).port}`;
    const scene = new ClientScene({ baseUrl, allowPrivateAddresses: true, timeout: 100 });
    expect(await scene.fails()).toMatchObject({ outcome: 'timeout', calls: 0 });
  });

  it('ends for a hook that never answers', async () => {
    const server = await RawServer.start(() => answer());
    const scene = ClientScene.of(server, { timeout: 50, authorize: () => new Promise(() => {}) });
    expect(await scene.fails()).toMatchObject({ outcome: 'timeout', calls: 0 });
  });

  it('of one call does not hold up the others', async () => {
    const server = await RawServer.start(({ path }) => (path === '/slow' ? undefined : answer()));
    const scene = ClientScene.of(server, { timeout: 1_000, cacheEntries: 0 });
    const slow = scene.fails('/slow');
    let answers = 0;
    void slow.then(() => (answers = -answers));
    while (answers >= 0 && answers < 1e6) {
      await scene.call('/fast');
      if (answers >= 0) answers++;
    }
    expect(-answers).toBeGreaterThan(10);
    expect(await slow).toMatchObject({ outcome: 'timeout' });
  });
});

describe('an end from outside', () => {
  it('aborts the call', async () => {
    const { server, asked } = await silent();
    const scene = ClientScene.of(server);
    const stop = new AbortController();
    const failed = scene.fails('/quote', { signal: stop.signal });
    await asked;
    stop.abort();
    expect(await failed).toMatchObject({ outcome: 'aborted', calls: 1 });
    expect(await scene.fails('/quote', { signal: stop.signal })).toMatchObject({ outcome: 'aborted', calls: 0 });
    expect(server).toMatchObject({ connections: 1 });
  });

  it('closes the client with what is under way', async () => {
    const { server, asked } = await silent();
    const scene = ClientScene.of(server);
    const failed = scene.fails();
    await asked;
    await scene.client.close();
    expect(await failed).toMatchObject({ outcome: 'aborted' });
    expect(await scene.fails()).toMatchObject({ outcome: 'aborted', calls: 0 });
  });

  it('has one listener at a signal, however many calls it ends', async () => {
    const { server } = await silent();
    const scene = ClientScene.of(server);
    const stop = new AbortController();
    const failed = [1, 2, 3].map((n) => scene.fails(`/quote/${n}`, { signal: stop.signal }));
    expect(getEventListeners(stop.signal, 'abort')).toHaveLength(1);
    stop.abort();
    for (const one of failed) expect(await one).toMatchObject({ outcome: 'aborted' });
    expect(getEventListeners(stop.signal, 'abort')).toHaveLength(0);
  });

  it('leaves no listener at a signal that lives on', async () => {
    const server = await RawServer.start(() => answer());
    const scene = ClientScene.of(server);
    const { signal } = new AbortController();
    await scene.call('/quote', { signal });
    expect(getEventListeners(signal, 'abort')).toHaveLength(0);
  });
});

describe('the network', () => {
  it('that refuses is named', async () => {
    const server = await RawServer.start(() => answer());
    const { url } = server;
    await server.close();
    const scene = new ClientScene({ baseUrl: url, allowPrivateAddresses: true });
    const failed = await scene.fails();
    expect(failed).toMatchObject({ outcome: 'network', calls: 0, wireBytes: 0 });
    expect(failed.message).toMatch(/ECONNREFUSED/);
  });

  it('that knows no such name is named', async () => {
    const scene = new ClientScene({ baseUrl: 'http://nowhere.invalid' });
    expect(await scene.fails()).toMatchObject({
      outcome: 'network',
      calls: 0,
      message: expect.stringMatching(/nowhere\.invalid/),
    });
  });

  it('that resets is named', async () => {
    const server = await RawServer.start(({ socket }) => void socket.resetAndDestroy());
    const failed = await ClientScene.of(server).fails();
    expect(failed).toMatchObject({ outcome: 'network', calls: 1 });
    expect(failed.message).toMatch(/ECONNRESET|socket hang up/);
  });

  it.each<['GET' | 'POST', string, object]>([
    ['GET', 'is asked once more', { ok: true, calls: 2 }],
    ['POST', 'is not asked twice', { outcome: 'network', calls: 1 }],
  ])('a %s on a connection that was just closed %s', async (method, _what, expected) => {
    const server = await RawServer.start(({ path, socket }) => {
      if (path === '/second' && server.connections === 1) return void socket.resetAndDestroy();
      return answer();
    });
    const taken: number[] = [];
    const scene = ClientScene.of(server, {}, { takeCall: (apiKey) => Promise.resolve(taken.push(apiKey) > 0) });
    await scene.call('/first');
    const second = await scene.call({ url: '/second', method }).then(
      ({ calls }) => ({ calls, ok: true }),
      (error: unknown) => error,
    );
    expect(second).toMatchObject(expected);
    expect(taken).toHaveLength(method === 'GET' ? 1 : 0);
  });
});

describe('a rate slot', () => {
  it('that has run out is not used', async () => {
    const server = await RawServer.start(() => answer());
    const scene = ClientScene.of(server);
    expect(await scene.fails('/quote', { sendWithinMs: 0 })).toMatchObject({
      outcome: 'unsent',
      calls: 0,
      wireBytes: 0,
    });
    expect(server.requests).toHaveLength(0);
    expect(await scene.call('/quote', { sendWithinMs: 5_000 })).toMatchObject({ calls: 1 });
  });

  it('is checked after the wait for a token', async () => {
    const server = await RawServer.start(() => answer());
    const scene = ClientScene.of(server, {
      token: async ({ call }) => {
        await call({ url: '/token', method: 'POST' });
        return { token: 'abcdefghijkl' };
      },
    });
    expect(await scene.fails('/quote', { sendWithinMs: 0 })).toMatchObject({ outcome: 'unsent', calls: 1 });
    expect(server.paths).toEqual(['/token']);
  });
});
