import { describe, expect, it } from 'vitest';
import { placeOf, prepare, redirected } from '../../src/sources/outgoing.ts';
import { answer, RawServer } from './raw-server.ts';
import { ClientScene, textOf } from './scene.ts';

const to = (location: string, status = '302 Found') => answer('', { location }, status);

describe('a redirect', () => {
  it('is followed, counted and asked for', async () => {
    const server = await RawServer.start(({ path }) => {
      const [, n] = /^\/(\d)/.exec(path)!;
      return n === '3' ? answer('{"there":true}') : to(`/${Number(n) + 1}?from=${n}#x`);
    });
    const asked: number[] = [];
    const scene = ClientScene.of(server, {}, { takeCall: (apiKey) => Promise.resolve(asked.push(apiKey) > 0) });
    const got = await scene.call('/0');
    expect(textOf(got)).toBe('{"there":true}');
    expect(server.paths).toEqual(['/0', '/1?from=0', '/2?from=1', '/3?from=2']);
    expect(got).toMatchObject({ calls: 4, wireBytes: server.bytesSent });
    expect(asked).toEqual([0, 0, 0]);
  });

  it('is not followed for ever', async () => {
    const server = await RawServer.start(() => to('/again'));
    const failed = await ClientScene.of(server).fails();
    expect(failed).toMatchObject({ outcome: 'network', calls: 4, wireBytes: server.bytesSent });
    expect(failed.message).toMatch(/redirected more than 3 times/);
  });

  it('is not followed when no call is left', async () => {
    const server = await RawServer.start(() => to('/again'));
    const scene = ClientScene.of(server, {}, { takeCall: () => Promise.resolve(false) });
    expect(await scene.fails()).toMatchObject({ outcome: 'no_slot', calls: 1, retryAfterMs: undefined });
    expect(server.requests).toHaveLength(1);
  });

  it('is not followed when nobody knows whether a call is left', async () => {
    const server = await RawServer.start(() => to('/again'));
    const scene = ClientScene.of(server, {}, { takeCall: () => Promise.reject(new Error('no database')) });
    const failed = await scene.fails();
    expect(failed).toMatchObject({ outcome: 'no_slot', calls: 1 });
    expect(failed.message).toMatch(/no call could be taken: no database$/);
  });

  it.each<[string, Buffer, string, RegExp]>([
    ['to another host', to('http://evil.example/'), 'config', /evil\.example is not a host of the source/],
    ['to another host without a scheme', to('//evil.example/'), 'config', /evil\.example is not a host/],
    ['to a file', to('file:///etc/passwd'), 'config', /expected http or https/],
    ['with a login', to('http://a:b@127.0.0.1/'), 'config', /without a login/],
    ['to no address', to('http://['), 'network', /to what is no address/],
    ['to nowhere', answer('', {}, '302 Found'), 'network', /without a Location/],
  ])('%s is refused', async (_name, bytes, outcome, message) => {
    const server = await RawServer.start(() => bytes);
    const failed = await ClientScene.of(server).fails();
    expect(failed).toMatchObject({ outcome, calls: 1, wireBytes: bytes.length });
    expect(failed.message).toMatch(message);
  });

  it.each(['300 Multiple', '304 Not Modified', '305 Use Proxy'])('is not what %s is', async (status) => {
    const server = await RawServer.start(() => to('/elsewhere', status));
    expect(await ClientScene.of(server).call()).toMatchObject({ status: Number(status.slice(0, 3)), calls: 1 });
  });

  it.each([
    ['301 Moved', 'POST', 'GET'],
    ['302 Found', 'POST', 'GET'],
    ['303 See Other', 'POST', 'GET'],
    ['303 See Other', 'PUT', 'GET'],
    ['302 Found', 'PUT', 'PUT'],
    ['307 Temporary', 'POST', 'POST'],
    ['308 Permanent', 'POST', 'POST'],
    ['308 Permanent', 'DELETE', 'DELETE'],
  ] as const)('by %s makes %s to %s', async (status, method, becomes) => {
    const server = await RawServer.start(({ path }) => (path === '/there' ? answer() : to('/there', status)));
    await ClientScene.of(server).call({ url: '/here', method, body: { a: 1 } });
    const [, second] = server.requests;
    expect(second).toMatchObject({ method: becomes, body: becomes === 'GET' ? '' : '{"a":1}' });
    expect('content-type' in second!.headers).toBe(becomes !== 'GET');
    expect('content-length' in second!.headers).toBe(becomes !== 'GET');
  });
});

it('a redirect from https to http is refused, though the host is of the source', () => {
  const place = placeOf({ baseUrl: 'https://api.example.com', hosts: [], headers: {} });
  const request = prepare({ url: '/quote' }, place);
  const sent = (location: string) => ({ status: 302, headers: new Headers({ location }) });
  expect(redirected(request, sent('https://api.example.com/new'), place)?.url.href).toBe('https://api.example.com/new');
  expect(() => redirected(request, sent('http://api.example.com/new'), place)).toThrow(/from https to http/);
});

describe('credentials', () => {
  const credentials = { authorize: () => ({ headers: { authorization: 'Bearer 12345678' }, query: { apikey: 'k' } }) };
  const own = { url: '/quote', headers: { cookie: 'session=1', 'x-api-key': 'mine', 'x-plan': 'gold' } };

  it('go with a redirect to the same host, signed anew', async () => {
    const server = await RawServer.start(({ path }) => (path.startsWith('/there') ? answer() : to('/there')));
    await ClientScene.of(server, credentials).call(own);
    expect(server.paths).toEqual(['/quote?apikey=k', '/there?apikey=k']);
    expect(server.requests[1]!.headers).toMatchObject({ authorization: 'Bearer 12345678', cookie: 'session=1' });
  });

  it('do not go to another host of the source', async () => {
    const files = await RawServer.start(() => answer());
    const server = await RawServer.start(() => to(`${files.url}/file`));
    await ClientScene.of(server, { ...credentials, hosts: [`127.0.0.1:${files.port}`] }).call(own);
    const [{ path, headers }] = files.requests as [(typeof files.requests)[number]];
    expect(path).toBe('/file');
    expect(headers).toMatchObject({ 'x-plan': 'gold' });
    expect(Object.keys(headers)).not.toEqual(expect.arrayContaining([expect.stringMatching(/auth|cookie|key/)]));
  });

  it('come back with the redirect that comes back', async () => {
    const files = await RawServer.start(() => to(`${server.url}/back`));
    const server: RawServer = await RawServer.start(({ path }) =>
      path.startsWith('/back') ? answer() : to(`${files.url}/file`),
    );
    await ClientScene.of(server, { ...credentials, hosts: [`127.0.0.1:${files.port}`] }).call('/quote');
    expect(server.requests[1]).toMatchObject({ path: '/back?apikey=k', headers: { authorization: 'Bearer 12345678' } });
  });
});
