import { describe, expect, it, test } from 'vitest';
import { faultOf, faults, type FaultKind, type Outcome } from '../../../examples/market/provider/faults/index.ts';
import { openTypes, routeOf, type OpenType } from './open-types.ts';
import { readByTheBook, type Read } from './reference-reader.ts';
import { apiKey, ProviderScene } from './scene.ts';

const kinds = Object.keys(faults) as FaultKind[];
const day = 86_400_000;
// Whoever is to answer is waited for, however busy this machine is; whoever is not to answer never does.
const patience = { answered: 20_000, unanswered: 400 };
const callsOf: Partial<Record<FaultKind, number>> = {
  redirect_within: 2,
  redirect_loop: 4,
  redirect_outside: 1,
  error_500: 1,
};

describe('the table of faults', () => {
  it('has many ways to lie, and at least two of each outcome that a lie can have', () => {
    expect(kinds.length).toBeGreaterThanOrEqual(80);
    const counts = Map.groupBy(kinds, (kind) => faultOf(kind).outcome);
    // These have one way only.
    const single = new Set<Outcome>(['empty', 'unchanged', 'unauthorized', 'forbidden']);
    for (const [outcome, ofIt] of counts)
      expect([outcome, ofIt.length >= (single.has(outcome) ? 1 : 2)]).toEqual([outcome, true]);
    expect([...counts.keys()].toSorted()).toEqual([
      'config',
      'empty',
      'forbidden',
      'fresh',
      'http_4xx',
      'http_5xx',
      'network',
      'not_json',
      'older_source',
      'rate_limited',
      'sanity',
      'schema',
      'suspicious',
      'timeout',
      'too_large',
      'unauthorized',
      'unchanged',
      'wrong_key',
    ] satisfies Outcome[]);
  });

  test.each(kinds)('%s comes to what it declares, in every route, once', async (kind) => {
    const scene = await ProviderScene.open();
    const { outcome, routes } = faultOf(kind);
    const types = openTypes.filter((type) => routes === undefined || routes.some((route) => route === routeOf(type)));
    expect(types.length).toBeGreaterThan(0);
    const read = (type: OpenType, known: Read['rows'], patienceMs = patience.answered) =>
      readByTheBook(type, { origin: scene.url, apiKey, key: 'AAPL', now: new Date(scene.time.now), known, patienceMs });
    const before = await Promise.all(types.map((type) => read(type, [])));
    // Later, so that an honest answer is a newer one in every route.
    scene.time.now += 120 * day;
    await Promise.all(
      types.map(async (type, place) => {
        const { rows } = before[place]!;
        const order = { kind, route: routeOf(type), symbol: 'AAPL', times: 1 };
        expect(await scene.admin('POST', '/faults', order)).toMatchObject({ status: 201, body: order });
        const spoilt = await read(type, rows, outcome === 'timeout' ? patience.unanswered : undefined);
        expect([type.name, spoilt.outcome]).toEqual([type.name, outcome]);
        if (kind in callsOf) expect(spoilt.calls).toBe(callsOf[kind]);
        expect((await read(type, rows)).outcome).toBe('fresh');
      }),
    );
    expect((await scene.admin('GET', '/faults')).body).toMatchObject({ ordered: [] });
  });
});

describe('faults are ordered', () => {
  const status = async (scene: ProviderScene, path: string) => (await scene.get(path)).status;

  it('for all, for a route, for a symbol, for so many times, and the last one counts', async () => {
    const scene = await ProviderScene.open();
    await scene.admin('POST', '/faults', { kind: 'error_500' });
    await scene.admin('POST', '/faults', { kind: 'forbidden', route: 'quote' });
    await scene.admin('POST', '/faults', { kind: 'gone', symbol: 'MSFT', times: 2 });
    expect(await status(scene, '/v1/profile/AAPL')).toBe(500);
    expect(await status(scene, '/v1/quote/AAPL')).toBe(403);
    expect(await status(scene, '/v1/quote/MSFT')).toBe(410);
    expect(await status(scene, '/v1/profile/MSFT')).toBe(410);
    expect(await status(scene, '/v1/quote/MSFT')).toBe(403);
    expect((await scene.admin('DELETE', '/faults/2')).body).toEqual({ cancelled: 1 });
    expect(await status(scene, '/v1/quote/MSFT')).toBe(500);
    expect((await scene.admin('DELETE', '/faults')).body).toEqual({ cancelled: 1 });
    expect(await status(scene, '/v1/quote/MSFT')).toBe(200);
  });

  it('until a time', async () => {
    const scene = await ProviderScene.open();
    await scene.admin('POST', '/faults', { kind: 'error_500', until: '2026-11-16T15:31:00Z' });
    scene.time.now += 59_999;
    expect(await status(scene, '/v1/quote/AAPL')).toBe(500);
    scene.time.now += 1;
    expect(await status(scene, '/v1/quote/AAPL')).toBe(200);
  });

  it('with how long to wait', async () => {
    const scene = await ProviderScene.open();
    const waits = async (kind: FaultKind, header: string) => {
      await scene.admin('POST', '/faults', { kind, seconds: 90, times: 1 });
      return (await scene.get('/v1/quote/AAPL')).headers.get(header);
    };
    expect(await waits('limited', 'retry-after')).toBe('90');
    expect(await waits('limited_date', 'retry-after')).toBe('Mon, 16 Nov 2026 15:31:30 GMT');
    expect(await waits('limited_reset', 'x-ratelimit-reset')).toBe(String(Date.parse('2026-11-16T15:31:30Z') / 1_000));
    expect(await waits('unavailable', 'retry-after')).toBe('90');
  });

  test.each([
    [{ kind: 'slwo' }, 'kind: expected a kind of fault, got "slwo"; GET /admin/faults lists them'],
    [{ kind: 'toString' }, 'kind: expected a kind of fault'],
    [{ kind: 'down', route: 'qoute' }, 'route: '],
    [{ kind: 'down', symbol: 'NOPE' }, 'symbol: expected a symbol that is listed'],
    [{ kind: 'down', times: 0 }, 'times: '],
    [{ kind: 'down', until: 'tomorrow' }, 'until: '],
    [{ kind: 'down', tims: 1 }, 'tims'],
    [{ kind: 'price_zero', route: 'profile' }, 'route: price_zero is of quote, got profile'],
    [[], 'body: '],
  ])('but not by %o', async (order, message) => {
    const scene = await ProviderScene.open();
    const { status: answered, body } = await scene.admin('POST', '/faults', order);
    expect([answered, (body['error'] as { message: string }).message]).toEqual([400, expect.stringContaining(message)]);
    expect((await scene.admin('GET', '/faults')).body).toMatchObject({ ordered: [] });
  });

  it('not by what is no JSON, not by a browser, and not where there is nothing', async () => {
    const scene = await ProviderScene.open();
    const post = (init: RequestInit) => fetch(`${scene.url}/admin/faults`, { method: 'POST', ...init });
    expect((await post({ body: 'kind=down' })).status).toBe(400);
    expect((await post({ body: ' '.repeat(20_000) })).status).toBe(413);
    expect((await post({ body: '{"kind":"down"}', headers: { origin: 'https://evil.example' } })).status).toBe(403);
    expect((await scene.admin('DELETE', '/faults/7')).status).toBe(404);
    expect((await scene.admin('GET', '/nothing')).status).toBe(404);
  });
});
