import { once } from 'node:events';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { describe, expect, it, onTestFinished } from 'vitest';
import { certificate } from './certificate.ts';
import { answer, chunked, RawServer } from './raw-server.ts';
import { ClientScene, textOf } from './scene.ts';

const body = JSON.stringify({ symbol: 'AAPL', history: Array.from({ length: 500 }, (_, n) => n % 17) });
const inChunks = { 'content-length': undefined, 'transfer-encoding': 'chunked' };

describe('bytes are counted as the provider counts them', () => {
  it.each<[string, Buffer]>([
    ['plain', answer(body)],
    ['gzip', answer(gzipSync(body), { 'content-encoding': 'gzip' })],
    ['x-gzip', answer(gzipSync(body), { 'content-encoding': 'x-gzip' })],
    [
      'gzip in two members',
      answer(Buffer.concat([gzipSync(body.slice(0, 9)), gzipSync(body.slice(9))]), { 'content-encoding': 'GZIP' }),
    ],
    ['chunked', answer(chunked(body.slice(0, 100), body.slice(100)), inChunks)],
    ['chunked gzip', answer(chunked(gzipSync(body)), { ...inChunks, 'content-encoding': 'gzip' })],
    ['identity', answer(body, { 'content-encoding': 'identity' })],
    ['long headers', answer(body, { 'x-note': 'x'.repeat(8_000) })],
    ['early hints', Buffer.concat([Buffer.from('HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n'), answer(body)])],
    ['a goodbye', answer(body, { connection: 'close' })],
  ])('%s', async (_name, bytes) => {
    const server = await RawServer.start(() => bytes);
    const scene = ClientScene.of(server, { cacheEntries: 0 });
    for (const turn of [1, 2, 3]) {
      const got = await scene.call();
      expect(textOf(got)).toBe(body);
      expect(got).toMatchObject({ calls: 1, wireBytes: bytes.length, fromCache: false });
      expect(server.bytesSent).toBe(turn * bytes.length);
    }
  });

  it('an answer that comes byte by byte', async () => {
    const bytes = answer('{"a":1}');
    const server = await RawServer.start(async ({ socket }) => {
      socket.setNoDelay(true);
      for (const byte of bytes) {
        socket.write(Buffer.of(byte));
        await new Promise(setImmediate);
      }
    });
    expect(await ClientScene.of(server).call()).toMatchObject({ wireBytes: bytes.length });
  });

  it('an answer that ends with the connection', async () => {
    const bytes = answer(body, { 'content-length': undefined, connection: 'close' });
    const server = await RawServer.start(({ socket }) => void socket.end(bytes));
    const got = await ClientScene.of(server).call();
    expect(textOf(got)).toBe(body);
    expect(got.wireBytes).toBe(bytes.length);
  });

  it('many answers at once', async () => {
    const bytes = answer(gzipSync(body), { 'content-encoding': 'gzip' });
    const server = await RawServer.start(() => bytes);
    const scene = ClientScene.of(server);
    const answers = await Promise.all(Array.from({ length: 300 }, (_, n) => scene.call(`/quote/${n}`)));
    expect(answers.reduce((sum, { wireBytes }) => sum + wireBytes, 0)).toBe(server.bytesSent);
    expect(server.requests).toHaveLength(300);
    expect(server.connections).toBeLessThanOrEqual(256);
  });

  it('through TLS, as they are before it', async () => {
    const known = getCACertificates('default');
    setDefaultCACertificates([...known, certificate.cert]);
    onTestFinished(() => setDefaultCACertificates(known));
    let sent = 0;
    const server = createServer(certificate, ({ socket }) => {
      const bytes = answer(body);
      sent += bytes.length;
      socket.write(bytes);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => server.close().closeAllConnections());
    const scene = new ClientScene({
      baseUrl: `https://localhost:${(server.address() as AddressInfo).port}`,
      allowPrivateAddresses: true,
      cacheEntries: 0,
    });
    expect((await scene.call()).wireBytes + (await scene.call()).wireBytes).toBe(sent);
  });
});

describe('the length is compared', () => {
  it.each<[string, (bytes: Buffer) => Buffer]>([
    ['a byte too short', (bytes) => bytes.subarray(0, -1)],
    ['without a body', (bytes) => bytes.subarray(0, bytes.indexOf('\r\n\r\n') + 4)],
    ['cut in its headers', (bytes) => bytes.subarray(0, 30)],
  ])('%s', async (_name, harm) => {
    const bytes = harm(answer(body));
    const server = await RawServer.start(({ socket }) => void socket.end(bytes));
    const failed = await ClientScene.of(server).fails();
    expect(failed).toMatchObject({ outcome: 'network', calls: 1, wireBytes: bytes.length });
    expect(failed.wireBytes).toBe(server.bytesSent);
  });

  it('and told', async () => {
    const server = await RawServer.start(({ socket }) => void socket.end(answer(body, { 'content-length': 5_000 })));
    expect((await ClientScene.of(server).fails()).message).toMatch(
      /cut after \d+ bytes of the answer, before the 5000 bytes of its Content-Length$/,
    );
  });

  it('of packed bytes, not of what is in them', async () => {
    const packed = gzipSync(body);
    const server = await RawServer.start(({ socket }) => {
      socket.end(answer(packed, { 'content-encoding': 'gzip', 'content-length': packed.length + 1 }));
    });
    expect(await ClientScene.of(server).fails()).toMatchObject({ outcome: 'network' });
  });

  it.each<[string, Record<string, string | number>, Buffer]>([
    ['garbage', {}, Buffer.from('xyz')],
    ['garbage before a goodbye', { connection: 'close' }, Buffer.from('xyz')],
    ['a second answer that nobody asked for', {}, answer('{"price":666}')],
  ])('too long by %s', async (_name, headers, more) => {
    const bytes = Buffer.concat([answer(body, headers), more]);
    const server = await RawServer.start(() => bytes);
    const scene = ClientScene.of(server);
    const failed = await scene.fails();
    expect(failed).toMatchObject({ outcome: 'network', wireBytes: bytes.length });
    expect(failed.message).toMatch(/more bytes came than its Content-Length says$/);
    // Nothing of it is left for the next call.
    expect((await scene.fails('/other')).wireBytes).toBe(bytes.length);
    expect(server.connections).toBe(2);
  });

  it('and what comes later is never taken for the next answer, but is counted', async () => {
    const closed = Promise.withResolvers<void>();
    let late: (() => void) | undefined;
    const server = await RawServer.start(({ socket, path }) => {
      if (path !== '/first') return answer('{"price":2}');
      socket.once('close', () => closed.resolve());
      late = () => void socket.write(answer('{"price":666}'));
      return answer('{"price":1}');
    });
    const scene = ClientScene.of(server);
    const first = await scene.call('/first');
    late!();
    await closed.promise;
    const second = await scene.call('/second');
    expect([textOf(first), textOf(second)]).toEqual(['{"price":1}', '{"price":2}']);
    expect(first.wireBytes + second.wireBytes).toBe(server.bytesSent);
    expect(scene.warnings).toMatchObject([{ code: 'answer_overlong', subject: 'market' }]);
  });

  it('a missing one is warned of once', async () => {
    const server = await RawServer.start(() => answer(chunked(body), inChunks));
    const scene = ClientScene.of(server, { cacheEntries: 0 });
    for (let turn = 0; turn < 3; turn++) await scene.call();
    expect(scene.warnings).toEqual([
      {
        type: 'warning',
        code: 'answer_without_length',
        subject: 'market',
        message: expect.stringContaining('market') as string,
        next: expect.any(String) as string,
      },
    ]);
  });

  it('an answer that has no body needs none', async () => {
    const server = await RawServer.start(() => 'HTTP/1.1 204 No Content\r\n\r\n');
    const scene = ClientScene.of(server);
    expect(await scene.call()).toMatchObject({ status: 204, body: new Uint8Array() });
    expect(scene.warnings).toEqual([]);
  });
});

describe('what is too large', () => {
  it.each<[string, Buffer, RegExp]>([
    ['by its own word', answer('x', { 'content-length': 1_000_000 }), /the answer is 1000000 bytes/],
    ['without a word', answer(chunked('x'.repeat(200_000)), inChunks), /more than maxWireBytes, 100000/],
    ['in hints without end', Buffer.from('HTTP/1.1 103 Hint\r\nx: y\r\n\r\n'.repeat(10_000)), /maxWireBytes/],
    ['in one header', answer(body, { 'x-bomb': 'x'.repeat(50_000) }), /headers are more than 16 KB/],
    [
      'in many headers',
      answer(body, Object.fromEntries(Array.from({ length: 2_000 }, (_, n) => [`x-${n}`, 'bombbomb']))),
      /headers are more than 16 KB/,
    ],
    [
      'unpacked',
      answer(gzipSync(Array.from({ length: 70_000 }, (_, n) => Math.imul(n, 2_654_435_761) >>> 24).join('')), {
        'content-encoding': 'gzip',
      }),
      /maxDecodedBytes, 150000/,
    ],
    ['by its ratio', answer(gzipSync(Buffer.alloc(140_000)), { 'content-encoding': 'gzip' }), /maxRatio, 100 times/],
  ])('%s is cut', async (_name, bytes, message) => {
    const server = await RawServer.start(() => bytes);
    const scene = ClientScene.of(server, { maxWireBytes: '100KB', maxDecodedBytes: '150KB' });
    const failed = await scene.fails();
    expect(failed).toMatchObject({ outcome: 'too_large', calls: 1 });
    expect(failed.message).toMatch(message);
  });

  it('a bomb that has come is not unpacked to its end', async () => {
    const bytes = answer(gzipSync(Buffer.alloc(60_000_000)), { 'content-encoding': 'gzip' });
    expect(bytes.length).toBeLessThan(65_536);
    const server = await RawServer.start(() => bytes);
    const before = process.memoryUsage().arrayBuffers;
    expect(await ClientScene.of(server).fails()).toMatchObject({ outcome: 'too_large' });
    const until = performance.now() + 300;
    let most = 0;
    while (performance.now() < until) {
      most = Math.max(most, process.memoryUsage().arrayBuffers - before);
      await new Promise(setImmediate);
    }
    expect(most).toBeLessThan(20_000_000);
  });

  it('a bomb is cut while it comes', async () => {
    const bytes = answer(gzipSync(Buffer.alloc(60_000_000)), { 'content-encoding': 'gzip' });
    // The rest comes only when somebody asks for it, which nobody does.
    const server = await RawServer.start(({ socket }) => void socket.write(bytes.subarray(0, 2_000)));
    const failed = await ClientScene.of(server).fails();
    expect(failed).toMatchObject({ outcome: 'too_large', wireBytes: 2_000 });
  });

  it('a small answer may grow as it likes', async () => {
    const spaces = ' '.repeat(60_000);
    const server = await RawServer.start(() => answer(gzipSync(spaces), { 'content-encoding': 'gzip' }));
    expect(textOf(await ClientScene.of(server).call())).toBe(spaces);
  });
});

describe('one encoding', () => {
  it('is asked for', async () => {
    const server = await RawServer.start(() => answer());
    await ClientScene.of(server).call();
    expect(server.requests[0]!.headers['accept-encoding']).toBe('gzip');
  });

  it.each<[string, Buffer]>([
    ['br', answer(brotliCompressSync(body), { 'content-encoding': 'br' })],
    ['deflate', answer(deflateSync(body), { 'content-encoding': 'deflate' })],
    ['gzip, gzip', answer(gzipSync(gzipSync(body)), { 'content-encoding': 'gzip, gzip' })],
    ['gzip and br', answer(brotliCompressSync(gzipSync(body)), { 'content-encoding': 'gzip, br' })],
    ['one that is no encoding', answer(body, { 'content-encoding': 'secret-sauce' })],
    ['gzip that is none', answer(body, { 'content-encoding': 'gzip' })],
    ['gzip that is cut', answer(gzipSync(body).subarray(0, -4), { 'content-encoding': 'gzip' })],
    [
      'gzip with something behind it',
      answer(Buffer.concat([gzipSync(body), Buffer.from('more')]), { 'content-encoding': 'gzip' }),
    ],
    [
      'gzip as transfer encoding',
      answer(chunked(gzipSync(body)), { ...inChunks, 'transfer-encoding': 'gzip, chunked' }),
    ],
    ['chunks with a length', answer(chunked(body), { 'transfer-encoding': 'chunked' })],
    ['two lengths', Buffer.from('HTTP/1.1 200 OK\r\ncontent-length: 1\r\nContent-Length: 2\r\n\r\n12')],
    ['a length that is none', answer(body, { 'content-length': '12x' })],
    ['chunks that are none', answer('zzz\r\n{}\r\n0\r\n\r\n', inChunks)],
    ['no HTTP', Buffer.from('SSH-2.0-OpenSSH_9.2\r\n')],
    ['another protocol', Buffer.from('HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n')],
    ['lines without CR', Buffer.from('HTTP/1.1 200 OK\ncontent-length: 2\n\n{}')],
  ])('%s is refused, and counted', async (_name, bytes) => {
    const server = await RawServer.start(() => bytes);
    const failed = await ClientScene.of(server).fails();
    expect(failed).toMatchObject({ outcome: 'network', calls: 1, wireBytes: bytes.length });
    expect(failed.wireBytes).toBe(server.bytesSent);
  });

  it.each<[string, Buffer]>([
    ['by its length', answer('', { 'content-encoding': 'gzip' })],
    ['in chunks', answer(chunked(), { ...inChunks, 'content-encoding': 'gzip' })],
  ])('gzip of nothing is nothing: %s', async (_name, bytes) => {
    const server = await RawServer.start(() => bytes);
    expect(textOf(await ClientScene.of(server).call())).toBe('');
  });
});
