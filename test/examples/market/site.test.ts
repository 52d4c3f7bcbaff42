import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { Provider } from '../../../examples/market/provider/provider.ts';
import { Site } from '../../../examples/market/site/site.ts';
import { atEnd } from '../../harness/database.ts';
import { temporaryFolder } from '../../harness/folder.ts';
import { openMarket } from './scene.ts';

const { db, url: databaseUrl } = await openMarket();
const folder = await temporaryFolder('site');
await mkdir(join(folder, 'assets'));
await writeFile(join(folder, 'index.html'), '<!doctype html><title>board</title>');
await writeFile(join(folder, 'assets/board-1.js'), 'let board');
const provider = new Provider({ port: 0, seed: 1, keys: ['demo-1'], limit: undefined, latencyMs: 0 });
const providerUrl = await provider.start();
const site = await Site.open({ databaseUrl, providerUrl, folder });
await rm(folder, { recursive: true });
atEnd(async () => {
  await site.close();
  await provider.stop();
});

async function ask(
  path: string,
  method = 'GET',
  body?: string,
): Promise<{ status: number; body: unknown; headers: Headers }> {
  const request = new Request(`http://127.0.0.1${path}`, { method, ...(body !== undefined && { body }) });
  const { status, headers, ...response } = await site.answer(request).then(async (answer) => ({
    status: answer.status,
    headers: answer.headers,
    text: await answer.text(),
  }));
  const isJson = headers.get('content-type')?.startsWith('application/json');
  return { status, headers, body: isJson ? (JSON.parse(response.text) as unknown) : response.text };
}

it('has the page, which the browser asks for again, and its parts, which it keeps', async () => {
  const page = await ask('/');
  expect([page.status, page.body]).toEqual([200, '<!doctype html><title>board</title>']);
  expect(page.headers.get('cache-control')).toBe('no-cache');
  expect(page.headers.get('content-security-policy')).toContain("default-src 'self'");
  const script = await ask('/dev/assets/board-1.js');
  expect([script.status, script.body]).toEqual([200, 'let board']);
  expect(script.headers.get('content-type')).toBe('text/javascript; charset=utf-8');
  expect(script.headers.get('cache-control')).toContain('immutable');
});

it.each([
  ['GET', '/dev/nothing'],
  ['GET', '/dev/assets/../../../package.json'],
  ['GET', '/dev/assets/%2e%2e%2f%2e%2e%2fpackage.json'],
  ['DELETE', '/dev/provider'],
  ['POST', '/'],
])('has nothing at %s %s', async (method, path) => {
  expect(await ask(path, method)).toMatchObject({ status: 404, body: { error: { code: 'not_found' } } });
});

it('lists all symbols, with the names that are known, and when exchanges open', async () => {
  const { body } = await ask('/dev/symbols');
  const { symbols, exchanges } = body as { symbols: object[]; exchanges: { exchange: string }[] };
  expect(symbols).toHaveLength(500);
  expect(symbols).toContainEqual({ symbol: 'AAPL.X', exchange: 'XTOK', name: null });
  expect(exchanges).toContainEqual({
    exchange: 'XTOK',
    name: 'Tokens of shares, day and night',
    open: true,
    opens_at: expect.any(String),
  });
});

it('has the points of a chart: one of each quote that was written, the last quarter of an hour of them', async () => {
  await db.query(
    `insert into profiles select symbol, 'A', 'XTOK', 'USD', 'US', 's', 'i', null, 1, '2000-01-01', null, '', true, now(), now() from symbols where symbol = 'AAPL.X'`,
  );
  const write = (price: number, ago: string) =>
    db.query(
      `insert into quotes values ('AAPL.X', $1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 'USD', date_trunc('second', now()) - $2::interval, now())
       on conflict (symbol) do update set price = excluded.price, source_updated_at = excluded.source_updated_at`,
      [price, ago],
    );
  await write(9, '16 minutes');
  await write(10, '20 seconds');
  await write(11, '1 second');
  // Twice the same is one point.
  await write(11, '1 second');
  const { body } = await ask('/dev/prices/AAPL.X');
  const points = body as [number, number][];
  expect(points.map(([, price]) => price)).toEqual([10, 11]);
  expect(points[1]![0]).toBeGreaterThan(points[0]![0]);
  expect((await ask('/dev/prices/NO%20SUCH')).body).toEqual([]);
});

it('breaks the provider and mends it', async () => {
  const now = async () => (await ask('/dev/provider')).body;
  expect(await now()).toEqual({ trouble: 'none' });
  for (const trouble of ['down', 'slow', 'lying', 'stuck', 'locked', 'changed', 'gone', 'none']) {
    expect(await ask('/dev/provider', 'PUT', JSON.stringify({ trouble }))).toMatchObject({
      status: 200,
      body: { trouble },
    });
    expect(await now()).toEqual({ trouble });
  }
  await fetch(`${providerUrl}/admin/faults`, { method: 'POST', body: '{"kind":"error_500"}' });
  expect(await now()).toEqual({ trouble: 'other' });
  await ask('/dev/provider', 'PUT', '{"trouble":"none"}');
  expect(await now()).toEqual({ trouble: 'none' });
});

it.each([
  ['down', 400, 'Expected JSON such as {"trouble":"down"}.'],
  [
    '{"trouble":"dwon"}',
    400,
    'Expected {"trouble":"…"} with one of none, down, slow, lying, stuck, locked, changed, gone, got {"trouble":"dwon"}.',
  ],
  [
    'null',
    400,
    'Expected {"trouble":"…"} with one of none, down, slow, lying, stuck, locked, changed, gone, got null.',
  ],
  [`"${'x'.repeat(2_000)}"`, 413, 'Expected at most 1000 characters.'],
])('refuses a wish such as %.20s', async (wish, status, message) => {
  expect(await ask('/dev/provider', 'PUT', wish)).toMatchObject({ status, body: { error: { message } } });
  expect((await ask('/dev/provider')).body).toEqual({ trouble: 'none' });
});
