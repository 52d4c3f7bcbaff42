import { describe, expect, it } from 'vitest';
import type { HttpRequest } from '../../src/index.ts';
import { AnswerHeaders } from '../../src/sources/answer-headers.ts';
import { ResponseCache, type Kept } from '../../src/sources/response-cache.ts';
import { answer, RawServer } from './raw-server.ts';
import { ClientScene, sourceOf, textOf } from './scene.ts';

async function counting(): Promise<RawServer> {
  let n = 0;
  return RawServer.start(() => answer(`{"n":${++n}}`));
}

describe('an answer of the cache', () => {
  it('costs no call and no bytes, and is as old as it is', async () => {
    const server = await counting();
    const scene = ClientScene.of(server);
    const first = await scene.call();
    const second = await scene.call();
    expect(first).toMatchObject({ fromCache: false, calls: 1 });
    expect(second).toMatchObject({ fromCache: true, calls: 0, wireBytes: 0, status: 200 });
    expect(textOf(second)).toBe('{"n":1}');
    expect(second.ageMs).toBeGreaterThan(first.ageMs);
    expect(second.headers.get('content-type')).toBe('application/json');
    expect(server.requests).toHaveLength(1);
    expect(scene.events).toMatchObject([
      { outcome: 'answered', calls: 1 },
      { outcome: 'cached', calls: 0, wireBytes: 0 },
    ]);
  });

  it('is an hour old at most unless the source says otherwise', () => {
    expect(sourceOf({})).toMatchObject({ cacheTtl: 3_600_000, cacheEntries: 1_000 });
  });

  it('is never older than the call allows, nor than the source does', async () => {
    const server = await counting();
    const scene = ClientScene.of(server, { cacheTtl: '1h' });
    await scene.call();
    expect(await scene.call('/quote', { cacheTtlMs: 0 })).toMatchObject({ fromCache: false });
    expect(await scene.call('/quote', { cacheTtlMs: 60_000 })).toMatchObject({ fromCache: true });
    const brief = ClientScene.of(server, { cacheTtl: '1ms' });
    await brief.call();
    const since = performance.now();
    while (performance.now() - since < 2) await new Promise(setImmediate);
    expect(await brief.call('/quote', { cacheTtlMs: 60_000 })).toMatchObject({ fromCache: false });
  });

  it('is gone when it was of no use', async () => {
    const server = await counting();
    const scene = ClientScene.of(server);
    scene.client.forget(await scene.call());
    const again = await scene.call();
    expect(again).toMatchObject({ fromCache: false });
    const hit = await scene.call();
    expect(hit).toMatchObject({ fromCache: true });
    scene.client.forget(hit);
    expect(await scene.call()).toMatchObject({ fromCache: false });
  });

  it('is given to a pair once: whoever asks again wants to know what is new', async () => {
    const server = await counting();
    const scene = ClientScene.of(server);
    const profile = { dataType: 'profile', key: 'A' };
    expect(textOf(await scene.call('/a', profile))).toBe('{"n":1}');
    expect(textOf(await scene.call('/a', { dataType: 'ratios', key: 'A' }))).toBe('{"n":1}');
    expect(textOf(await scene.call('/a', profile))).toBe('{"n":2}');
    expect(textOf(await scene.call('/a', { dataType: 'ratios', key: 'A' }))).toBe('{"n":2}');
    expect(textOf(await scene.call('/a', { dataType: 'ratios', key: 'B' }))).toBe('{"n":2}');
    expect(server.requests).toHaveLength(2);
  });

  it('is not spoilt by who has it', async () => {
    const scene = ClientScene.of(await counting());
    const first = await scene.call();
    first.headers.set('content-type', 'spoilt');
    const second = await scene.call();
    second.headers.set('content-type', 'spoilt');
    expect((await scene.call()).headers.get('content-type')).toBe('application/json');
  });

  it.each<[string, HttpRequest, HttpRequest]>([
    ['the order of the query', { url: '/q?b=2&a=1' }, { url: '/q', query: { a: 1, b: 2 } }],
    ['the case of a header', { url: '/q', headers: { 'X-A': '1' } }, { url: '/q', headers: { 'x-a': '1' } }],
    ['an anchor', { url: '/q#x' }, { url: '/q' }],
    ['the form of the address', { url: 'q' }, { url: '/q' }],
    ['the same body', { url: '/q', method: 'POST', body: { a: 1 } }, { url: '/q', method: 'POST', body: { a: 1 } }],
  ])('is found whatever %s', async (_name, one, other) => {
    const scene = ClientScene.of(await counting());
    await scene.call(one);
    expect(await scene.call(other)).toMatchObject({ fromCache: true });
  });

  it.each<[string, HttpRequest]>([
    ['another path', { url: '/other' }],
    ['another query', { url: '/q?a=2' }],
    ['another method', { url: '/q?a=1', method: 'POST' }],
    ['a header', { url: '/q?a=1', headers: { accept: 'text/csv' } }],
    ['another body', { url: '/q?a=1', method: 'POST', body: { a: 1 } }],
    ['writing', { url: '/q?a=1', method: 'DELETE' }],
  ])('is not that of %s', async (_name, other) => {
    const scene = ClientScene.of(await counting());
    await scene.call({ url: '/q?a=1' });
    await scene.call({ url: '/q?a=1', method: 'DELETE' });
    expect(await scene.call(other)).toMatchObject({ fromCache: false });
  });

  it('is that of any API key, because none is part of the request', async () => {
    const server = await counting();
    const scene = ClientScene.of(
      server,
      { apiKeys: [{ env: 'A' }, { env: 'B' }], authorize: (_, { apiKey }) => ({ query: { apikey: apiKey! } }) },
      { env: { A: 'first-key-1', B: 'second-key-2' } },
    );
    await scene.call('/q', { apiKey: 0 });
    expect(await scene.call('/q', { apiKey: 1 })).toMatchObject({ fromCache: true });
    await scene.call('/r', { apiKey: 1 });
    expect(server.paths).toEqual(['/q?apikey=first-key-1', '/r?apikey=second-key-2']);
  });

  it('is none if the call failed, or if the source wants none', async () => {
    const server = await RawServer.start(() => (server.requests.length === 1 ? answer('', {}, '500 Oops') : answer()));
    const scene = ClientScene.of(server);
    await scene.fails();
    expect(await scene.call()).toMatchObject({ fromCache: false });
    const without = ClientScene.of(server, { cacheEntries: 0 });
    await without.call();
    expect(await without.call()).toMatchObject({ fromCache: false });
  });
});

describe('the cache', () => {
  const kept = (size: number): Kept => ({
    status: 200,
    headers: new AnswerHeaders([]),
    body: new Uint8Array(size),
    since: performance.now(),
    givenTo: new Set(),
  });

  it('keeps so many answers, those that were used last', () => {
    const cache = new ResponseCache(2);
    cache.set('a', kept(1));
    cache.set('b', kept(1));
    cache.get('a', 1e6);
    cache.set('c', kept(1));
    expect(['a', 'b', 'c'].map((key) => cache.get(key, 1e6) !== undefined)).toEqual([true, false, true]);
  });

  it('keeps so many bytes, and no answer that would take them all', () => {
    const cache = new ResponseCache(1e6);
    for (let n = 0; n < 30; n++) cache.set(String(n), kept(5e6));
    const left = Array.from({ length: 30 }, (_, n) => cache.get(String(n), 1e6) !== undefined);
    expect(left.lastIndexOf(false)).toBe(17);
    cache.set('huge', kept(9e6));
    expect(cache.get('huge', 1e6)).toBeUndefined();
    expect(cache.get('29', 1e6)).toBeDefined();
  });

  it('counts what was replaced or removed no more', () => {
    const cache = new ResponseCache(1e6);
    for (let n = 0; n < 100; n++) cache.set('same', kept(5e6));
    for (let n = 0; n < 100; n++) {
      cache.set('other', kept(5e6));
      cache.delete('other');
    }
    cache.set('small', kept(1));
    expect(cache.get('same', 1e6)).toBeDefined();
  });
});
