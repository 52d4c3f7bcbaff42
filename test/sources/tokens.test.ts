import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { Tokens } from '../../src/sources/tokens.ts';
import type { SourceDefinition } from '../../src/index.ts';
import { answer, RawServer, type RawRequest } from './raw-server.ts';
import { ClientScene, textOf } from './scene.ts';

interface Provider {
  readonly server: RawServer;
  /** Ends all tokens that were given. */
  readonly revoke: () => void;
}

const token: NonNullable<SourceDefinition['token']> = async ({ apiKey, call }) => {
  const got = await call({ method: 'POST', url: '/token', body: new URLSearchParams({ secret: apiKey ?? '' }) });
  const { access, ttl } = got.json() as { access: string; ttl?: number };
  return { token: access, expiresInMs: ttl };
};
const keys = { apiKeys: [{ env: 'A' }, { env: 'B' }] };
const env = { A: 'client-secret-a', B: 'client-secret-b' };

/** A provider that gives tokens at /token and wants a valid one elsewhere. */
async function provider(ttl?: number, tokenAnswer?: (request: RawRequest) => Buffer | undefined): Promise<Provider> {
  let given = 0;
  let valid = new Set<string>();
  const server = await RawServer.start((request) => {
    if (request.path === '/token') {
      const special = tokenAnswer?.(request);
      if (special) return special;
      const access = `token-${++given}-of-${request.body.slice(-1)}`;
      valid.add(access);
      return answer(JSON.stringify({ access, ttl }));
    }
    const sent = request.headers['authorization']?.replace('Bearer ', '') ?? '';
    return valid.has(sent) ? answer(JSON.stringify(sent)) : answer('{}', {}, '401 Unauthorized');
  });
  return { server, revoke: () => (valid = new Set()) };
}

describe('a token', () => {
  it('is fetched once, and its call counts', async () => {
    const { server } = await provider();
    const taken: number[] = [];
    const takeCall = (apiKey: number) => Promise.resolve(taken.push(apiKey) > 0);
    const scene = ClientScene.of(server, { ...keys, token }, { env, takeCall });
    const first = await scene.call('/a', { apiKey: 1 });
    expect(textOf(first)).toBe('"token-1-of-b"');
    expect(first).toMatchObject({ calls: 2, wireBytes: server.bytesSent });
    expect(await scene.call('/b', { apiKey: 1 })).toMatchObject({ calls: 1 });
    expect(taken).toEqual([1]);
    expect(server.paths).toEqual(['/token', '/a', '/b']);
    expect(server.requests[0]!.body).toBe('secret=client-secret-b');
  });

  it('is one for each API key', async () => {
    const { server } = await provider();
    const scene = ClientScene.of(server, { ...keys, token }, { env });
    expect(textOf(await scene.call('/a', { apiKey: 0 }))).toBe('"token-1-of-a"');
    expect(textOf(await scene.call('/b', { apiKey: 1 }))).toBe('"token-2-of-b"');
  });

  it('is fetched once for many who need it, and paid once', async () => {
    const { server, revoke } = await provider();
    const scene = ClientScene.of(server, { ...keys, token }, { env });
    for (const turn of [1, 2]) {
      const answers = await Promise.all(Array.from({ length: 20 }, (_, n) => scene.call(`/${turn}/${n}`)));
      expect(server.paths.filter((path) => path === '/token')).toHaveLength(turn);
      expect(server.requests).toHaveLength(answers.reduce((sum, { calls }) => sum + calls, turn === 1 ? 0 : 21));
      revoke();
    }
  });

  it('that is refused is fetched anew, once', async () => {
    const { server, revoke } = await provider();
    const scene = ClientScene.of(server, { ...keys, token }, { env });
    await scene.call('/a');
    revoke();
    expect(await scene.call('/b')).toMatchObject({ calls: 3, status: 200 });
    expect(server.paths).toEqual(['/token', '/a', '/b', '/token', '/b']);
  });

  it('that is refused again is a failure', async () => {
    const { server } = await provider(undefined, () => answer('{"access":"never-good"}'));
    const scene = ClientScene.of(server, { ...keys, token }, { env });
    expect(await scene.fails('/a')).toMatchObject({
      outcome: 'http_4xx',
      status: 401,
      calls: 4,
      wireBytes: server.bytesSent,
    });
  });

  it('that has ended is fetched anew', async () => {
    const { server } = await provider(1);
    const scene = ClientScene.of(server, { ...keys, token }, { env });
    await scene.call('/a');
    const since = performance.now();
    while (performance.now() - since < 2) await new Promise(setImmediate);
    await scene.call('/b');
    expect(server.paths).toEqual(['/token', '/a', '/token', '/b']);
  });

  it.each([undefined, Number.NaN, 0, -1])('that lasts %s is good until it is refused', async (expiresInMs) => {
    const server = await RawServer.start(() => answer());
    let fetched = 0;
    const scene = ClientScene.of(server, {
      token: () => Promise.resolve({ token: `token-${++fetched}`, expiresInMs }),
    });
    for (const path of ['/a', '/b', '/c']) await scene.call(path);
    expect(fetched).toBe(1);
  });

  it('is not fetched when no call is left', async () => {
    const { server } = await provider();
    const scene = ClientScene.of(server, { ...keys, token }, { env, takeCall: () => Promise.resolve(false) });
    expect(await scene.fails('/a')).toMatchObject({ outcome: 'no_slot', calls: 0 });
    expect(server.requests).toHaveLength(0);
  });

  it('sound 2: that no call is left for is needed by the one that would have fetched it, and not by those who wait', async () => {
    const { server } = await provider();
    const scene = ClientScene.of(server, { ...keys, token }, { env, takeCall: () => Promise.resolve(false) });
    const failures = await Promise.all([scene.fails('/a'), scene.fails('/b')]);
    expect(failures.map(({ outcome, needs }) => [outcome, needs])).toEqual([
      ['no_slot', 2],
      ['no_slot', undefined],
    ]);
  });

  it.each<[string, Buffer, object]>([
    ['a limit', answer('', { 'retry-after': 5 }, '429 Slow'), { outcome: 'rate_limited', retryAfterMs: 5_000 }],
    ['a fault', answer('', {}, '500 Oops'), { outcome: 'http_5xx', status: 500 }],
    ['no JSON', answer('<html>'), { outcome: 'config', message: expect.stringMatching(/the hook token failed: /) }],
    ['no token', answer('{}'), { outcome: 'config', message: expect.stringMatching(/the hook token gave no token$/) }],
  ])('whose call gives %s is a failure for all who wait', async (_name, bytes, expected) => {
    const { server } = await provider(undefined, () => bytes);
    const scene = ClientScene.of(server, { ...keys, token }, { env });
    const failures = await Promise.all([scene.fails('/a'), scene.fails('/b')]);
    for (const failed of failures) expect(failed).toMatchObject(expected);
    expect(failures.map(({ calls }) => calls)).toEqual([1, 0]);
  });

  it('that comes too late for the first call serves the next, which pays for it', async () => {
    const release = Promise.withResolvers<void>();
    const server = await RawServer.start(async ({ path }) => {
      if (path !== '/token') return answer();
      await release.promise;
      return answer('{"access":"late-token"}');
    });
    const scene = ClientScene.of(server, { ...keys, token }, { env });
    const stop = new AbortController();
    const first = scene.fails('/a', { signal: stop.signal });
    await expect.poll(() => server.paths, { interval: 5 }).toEqual(['/token']);
    stop.abort();
    expect(await first).toMatchObject({ outcome: 'aborted', calls: 0 });
    const second = scene.call('/b');
    release.resolve();
    await second;
    const third = await scene.call('/c');
    expect((await second).calls + third.calls).toBe(server.requests.length);
    expect((await second).wireBytes + third.wireBytes).toBe(server.bytesSent);
  });
});

it('a token is fetched anew a little before it ends', async () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const tokens = new Tokens();
  let fetched = 0;
  const get = async () => tokens.get(0, async () => ({ token: `t${++fetched}`, expiresInMs: 20_000 }));
  expect(await get()).toBe('t1');
  vi.advanceTimersByTime(14_900);
  expect(await get()).toBe('t1');
  vi.advanceTimersByTime(200);
  expect(await get()).toBe('t2');
});

describe('authorize', () => {
  it('sees the request, and changes what is sent', async () => {
    const server = await RawServer.start(() => answer());
    const seen: unknown[] = [];
    const scene = ClientScene.of(
      server,
      {
        ...keys,
        authorize: (request, context) => {
          seen.push({ ...request, headers: { ...request.headers } }, context);
          return {
            headers: { 'X-Signature': `${request.method}:${String(request.body)}` },
            query: { apikey: context.apiKey! },
          };
        },
      },
      { env },
    );
    await scene.call({ method: 'POST', url: '/a?b=1', body: { c: 2 } });
    expect(seen).toMatchObject([
      { method: 'POST', url: `${server.url}/a?b=1`, headers: { 'content-type': 'application/json' }, body: '{"c":2}' },
      { apiKey: 'client-secret-a', token: undefined },
    ]);
    expect(server.requests[0]).toMatchObject({
      path: '/a?b=1&apikey=client-secret-a',
      headers: { 'x-signature': 'POST:{"c":2}' },
    });
  });

  it('may give the request back as a whole, with another address and body', async () => {
    const server = await RawServer.start(() => answer());
    const scene = ClientScene.of(server, {
      authorize: (request) => ({ ...request, url: `${request.url}&signed=yes`, body: `${String(request.body)}!` }),
    });
    await scene.call({ method: 'POST', url: '/a?b=1', body: 'text' });
    expect(server.requests[0]).toMatchObject({ path: '/a?b=1&signed=yes', body: 'text!' });
  });

  it('may wait for something', async () => {
    const server = await RawServer.start(() => answer());
    const scene = ClientScene.of(server, { authorize: () => Promise.resolve({ headers: { 'x-a': 'b' } }) });
    await scene.call();
    expect(server.requests[0]!.headers).toMatchObject({ 'x-a': 'b' });
  });

  it.each<[string, SourceDefinition['authorize'], RegExp]>([
    [
      'throws',
      () => {
        throw new Error('no key today');
      },
      /the hook authorize failed: no key today$/,
    ],
    ['gives nothing', () => undefined as never, /the hook authorize failed: expected an object, got undefined$/],
    ['goes elsewhere', () => ({ url: 'https://evil.example/' }), /authorize may not change the host/],
    ['sets the host', () => ({ headers: { host: 'evil.example' } }), /the header host is not one/],
  ])('that %s is a mistake of the configuration', async (_name, authorize, message) => {
    const server = await RawServer.start(() => answer());
    const failed = await ClientScene.of(server, { authorize }).fails();
    expect(failed).toMatchObject({ outcome: 'config', calls: 0 });
    expect(failed.message).toMatch(message);
    expect(server.requests).toHaveLength(0);
  });
});
