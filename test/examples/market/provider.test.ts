import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, expect, it, test } from 'vitest';
import { latencyMs } from '../../../examples/market/provider/latency.ts';
import { listings } from '../../../examples/market/provider/listings.ts';
import { seededRandom } from '../../harness/random.ts';
import { apiKey, ProviderScene } from './scene.ts';

const paths = ['quote', 'profile', 'financial-statements', 'ratios', 'dividends'].map((route) => `/v1/${route}/AAPL`);

describe('the answers', () => {
  it('are the same for the same seed and time, and others for another', async () => {
    const [one, same, other] = [
      await ProviderScene.open(),
      await ProviderScene.open(),
      await ProviderScene.open({ seed: 2 }),
    ];
    for (const path of paths) {
      const answer = await one.json(path);
      expect(await same.json(path)).toEqual(answer);
      expect(await other.json(path)).not.toEqual(answer);
    }
  });

  it('move a little every second, and not within one', async () => {
    const scene = await ProviderScene.open();
    const prices: number[] = [];
    for (let second = 0; second < 60; second++) {
      const quote = await scene.json('/v1/quote/AAPL');
      expect(quote['timestamp']).toBe(new Date(scene.time.now).toISOString());
      scene.time.now += 999;
      expect(await scene.json('/v1/quote/AAPL')).toEqual(quote);
      scene.time.now += 1;
      prices.push(quote['price'] as number);
    }
    expect(new Set(prices).size).toBeGreaterThan(10);
    for (const price of prices) expect(Math.abs(price / prices[0]! - 1)).toBeLessThan(0.01);
  });

  it('are about 500 symbols', async () => {
    expect(listings.size).toBe(500);
    const scene = await ProviderScene.open();
    for (const symbol of listings.keys()) expect(await scene.json(`/v1/quote/${symbol}`)).toMatchObject({ symbol });
  });

  it('tell quarters and years, of which the years are the sums', async () => {
    const scene = await ProviderScene.open();
    type Answer = { statements: { fiscalYear: number; period: string; periodEnd: string; revenue: number }[] };
    const quarters = (await scene.json('/v1/financial-statements/AAPL?limit=8')) as unknown as Answer;
    expect(quarters.statements.map(({ periodEnd }) => periodEnd).slice(0, 5)).toEqual([
      '2026-09-30',
      '2026-06-30',
      '2026-03-31',
      '2025-12-31',
      '2025-09-30',
    ]);
    const years = (await scene.json('/v1/financial-statements/AAPL?period=annual&limit=1')) as unknown as Answer;
    const sum = quarters.statements
      .filter(({ fiscalYear }) => fiscalYear === 2025)
      .reduce((total, { revenue }) => total + revenue, 0);
    expect(years.statements).toMatchObject([{ fiscalYear: 2025, period: 'FY', revenue: sum }]);
  });

  test.each([
    ['/v1/quote/NOPE', {}, 404, 'unknown_symbol'],
    ['/v1/quote/%E0%A4%A', {}, 404, 'unknown_symbol'],
    ['/v1/qoute/AAPL', {}, 404, 'unknown_route'],
    ['/', {}, 404, 'unknown_route'],
    ['/v1/quote/AAPL', { key: 'stolen' }, 401, 'unknown_key'],
    ['/v1/dividends/AAPL?limit=0', {}, 400, 'bad_limit'],
    ['/v1/dividends/AAPL?limit=x', {}, 400, 'bad_limit'],
    ['/v1/financial-statements/AAPL?period=decade', {}, 400, 'bad_period'],
  ])('to %s with %o is %i %s', async (path, headers, status, code) => {
    const scene = await ProviderScene.open();
    const response = await scene.get(path, headers);
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({ error: { code } });
  });

  it('take a key from the address too, and no other method than GET', async () => {
    const scene = await ProviderScene.open();
    expect((await fetch(`${scene.url}/v1/quote/AAPL?apikey=${apiKey}`)).status).toBe(200);
    const posted = await fetch(`${scene.url}/v1/quote/AAPL?apikey=${apiKey}`, { method: 'POST', body: '{}' });
    expect([posted.status, posted.headers.get('allow')]).toEqual([405, 'GET']);
  });

  it('are packed if the client takes that', async () => {
    const scene = await ProviderScene.open();
    const encoding = async (accepted: string) =>
      /content-encoding: (\w+)/.exec(await scene.raw('/v1/profile/AAPL', [`accept-encoding: ${accepted}`]))?.[1];
    expect(await encoding('gzip')).toBe('gzip');
    expect(await encoding('br, gzip;q=0.5')).toBe('gzip');
    expect(await encoding('br')).toBeUndefined();
    expect(await encoding('gzip;q=0')).toBeUndefined();
    expect(await (await scene.get('/v1/profile/AAPL', { 'accept-encoding': 'gzip' })).json()).toMatchObject({
      symbol: 'AAPL',
    });
  });
});

describe('the limit', () => {
  it('is exact in any minute, whatever the calls do, and gives away nothing', async () => {
    const scene = await ProviderScene.open({ limit: 30 });
    const random = seededRandom(5);
    for (let call = 0; call < 600; call++) {
      await (await scene.get('/v1/quote/AAPL')).arrayBuffer();
      // Bursts and pauses.
      scene.time.now += random() < 0.05 ? 20_000 * random() : 500 * random();
    }
    const calls = await scene.calls();
    expect(calls).toHaveLength(600);
    const accepted = calls.filter(({ status }) => status === 200).map(({ at }) => at);
    const within = (end: number) => accepted.filter((at) => at > end - 60_000 && at <= end).length;
    for (const at of accepted) expect(within(at)).toBeLessThanOrEqual(30);
    const refused = calls.filter(({ status }) => status === 429);
    expect(refused.length).toBeGreaterThan(50);
    for (const { at } of refused) expect(within(at)).toBe(30);
  });

  it('says what is left and when to come back, and then lets it pass', async () => {
    const scene = await ProviderScene.open({ limit: 2, keys: [apiKey, 'another'] });
    const seen = async (key = apiKey) => {
      const { status, headers } = await scene.get('/v1/quote/AAPL', { key });
      return [status, headers.get('x-ratelimit-remaining'), headers.get('retry-after')];
    };
    expect(await seen()).toEqual([200, '1', null]);
    scene.time.now += 10_500;
    expect(await seen()).toEqual([200, '0', null]);
    expect(await seen()).toEqual([429, '0', '50']);
    expect(await seen('another')).toEqual([200, '1', null]);
    scene.time.now += 49_499;
    expect(await seen()).toEqual([429, '0', '1']);
    scene.time.now += 1;
    expect(await seen()).toEqual([200, '0', null]);
    const reset = Number((await scene.get('/v1/quote/AAPL')).headers.get('x-ratelimit-reset'));
    expect(Math.abs(reset - (Date.now() + 10_500) / 1_000)).toBeLessThan(5);
  });
});

describe('the latency', () => {
  it('has the median that was asked for and a tail, and repeats itself for the seed', () => {
    const of = (seed: number) => Array.from({ length: 20_000 }, (_, count) => latencyMs(seed, 10, count));
    const sorted = of(1).toSorted((a, b) => a - b);
    expect(sorted[10_000]).toBeCloseTo(10, 0);
    expect(sorted[19_800]! / sorted[10_000]!).toBeGreaterThan(4);
    expect(of(1)).toEqual(of(1));
    expect(of(2)).not.toEqual(of(1));
  });

  it('does not hold a provider that stops', async () => {
    const scene = await ProviderScene.open({ latencyMs: 5_000 });
    const answer = scene.get('/v1/quote/AAPL').catch((error: unknown) => error);
    while ((await scene.admin('GET', '/meter')).body['calls'] === 0);
    await scene.provider.stop();
    expect(await answer).toBeInstanceOf(TypeError);
  });
});

describe('as a process', () => {
  const start = (...options: string[]) =>
    spawn(process.execPath, ['examples/market/provider/main.ts', ...options], { stdio: 'pipe' });
  const firstLine = async (child: ReturnType<typeof start>) =>
    JSON.parse(String((await once(child.stdout, 'data'))[0])) as { url: string };

  it('tells its address in one line, answers, and ends when it is asked to', async () => {
    const child = start('--port', '0', '--seed', '7', '--keys', 'a,b');
    const line = await firstLine(child);
    expect(line).toMatchObject({
      url: expect.stringMatching(/^http:\/\/127\.0\.0\.1:\d+$/),
      pid: child.pid,
      seed: 7,
      keys: ['a', 'b'],
      limit: 300,
    });
    expect((await fetch(`${line.url}/v1/quote/AAPL`, { headers: { 'x-api-key': 'b' } })).status).toBe(200);
    child.kill('SIGTERM');
    expect(await once(child, 'close')).toEqual([0, null]);
  });

  it('ends with whoever started it, if that is wanted', async () => {
    const child = start('--port', '0', '--attached', '--no-limit');
    expect(await firstLine(child)).toMatchObject({ limit: null });
    child.stdin.end();
    expect(await once(child, 'close')).toEqual([0, null]);
  });

  it.each([
    [['--port', 'x'], '--port: expected a whole number from 0 to 65535, got "x"'],
    [['--limit', '0'], '--limit: expected a whole number from 1 to 1000000, got "0"'],
    [['--keys', ','], '--keys: expected at least one key'],
    [['--prot', '1'], "Unknown option '--prot'"],
  ])('refuses %o', async (options, message) => {
    const child = start(...options);
    let error = '';
    child.stderr.on('data', (chunk: Buffer) => (error += chunk.toString()));
    expect(await once(child, 'close')).toEqual([2, null]);
    expect(error).toContain(message);
    expect(error).toContain('--seed <number>');
  });
});
