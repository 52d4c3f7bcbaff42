import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, request, type IncomingMessage } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Hono } from 'hono';
import { afterAll, afterEach, describe, expect, it } from 'vitest';
import { isLoopback, resolveConfig, type Config } from '../../src/config/index.ts';
import { Events, type PgfreshEvent } from '../../src/events/index.ts';
import { guard } from '../../src/http/guard.ts';
import { HttpServer, tokenOf } from '../../src/http/index.ts';
import { Health, Metrics } from '../../src/watch/index.ts';

const dataDir = await mkdtemp(join(tmpdir(), 'pgfresh-http-'));
afterAll(() => rm(dataDir, { recursive: true }));

const running: HttpServer[] = [];
afterEach(async () => {
  for (const server of running.splice(0)) await server.stop();
});

async function start(config: Config = {}) {
  const events = new Events();
  const seen: PgfreshEvent[] = [];
  events.subscribe((event) => seen.push(event));
  const health = new Health();
  const server = new HttpServer({
    settings: resolveConfig({ config: { port: 0, dataDir, ...config } }).settings,
    events,
    health,
    metrics: new Metrics(events),
    routes: (app) =>
      app
        .post('/things', (context) => context.text('written'))
        .get('/broken', () => {
          throw new Error('oops');
        }),
  });
  running.push(server);
  await server.start();
  return { server, health, events, seen };
}

/** As fetch, which does not let the Host header be chosen. */
async function ask(
  url: string,
  headers: Record<string, string>,
  method = 'GET',
): Promise<{ status: number; body: string }> {
  const sent = request(url, { method, headers });
  sent.end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  return { status: response.statusCode!, body: await new Response(response as never).text() };
}

describe('health', () => {
  it('is alive and ready, and shows each check when asked', async () => {
    const { server, health } = await start();
    health.add('database', async () => 'answers');
    expect(await (await fetch(`${server.url}/livez`)).text()).toBe('ok');
    expect(await (await fetch(`${server.url}/readyz`)).text()).toBe('ready');
    expect(await (await fetch(`${server.url}/readyz?verbose`)).json()).toEqual({
      ready: true,
      checks: [{ name: 'database', ok: true, detail: 'answers' }],
    });
  });

  it('is alive but not ready while a check fails', async () => {
    const { server, health } = await start();
    health.add('good', async () => 'fine');
    health.add('bad', async () => {
      throw new Error('gone');
    });
    const response = await fetch(`${server.url}/readyz?verbose`);
    expect(response.status).toBe(503);
    expect(await response.json()).toMatchObject({
      ready: false,
      checks: [{ ok: true }, { ok: false, detail: 'gone' }],
    });
    expect((await fetch(`${server.url}/livez`)).status).toBe(200);
  });

  it('does not wait for ever for a check that hangs', async () => {
    const { server, health } = await start();
    health.add('stuck', () => new Promise(() => {}));
    const response = await fetch(`${server.url}/readyz?verbose`);
    expect(await response.json()).toMatchObject({ ready: false, checks: [{ detail: 'no answer within 2000 ms' }] });
  });
});

it('serves metrics that count events', async () => {
  const { server, events } = await start();
  events.emit({ type: 'warning', code: 'transaction_pooler', message: 'm', next: 'n' });
  events.emit({ type: 'transaction.retried', label: 'x', failure: 'deadlock', attempt: 1 });
  const text = await (await fetch(`${server.url}/metrics`)).text();
  expect(text).toContain('pgfresh_warnings_total{code="transaction_pooler"} 1');
  expect(text).toContain('pgfresh_events_total{type="warning"} 1');
  expect(text).toContain('pgfresh_transaction_retries_total{failure="deadlock"} 1');
  expect(text).toMatch(/process_resident_memory_bytes \d+/);
});

describe('the Host header', () => {
  it.each(['evil.example', 'evil.example:4400', 'localhost.evil.example', '127.0.0.1.evil.example', '10.0.0.1'])(
    '%s is refused',
    async (host) => {
      const { server, seen } = await start();
      expect((await ask(`${server.url}/livez`, { host })).status).toBe(403);
      expect(seen.at(-1)).toMatchObject({ type: 'http.refused', status: 403 });
    },
  );

  it.each(['localhost', 'LOCALHOST:1', '127.0.0.1', '[::1]:4400', 'fresh.example', 'FRESH.example:443'])(
    '%s is ours',
    async (host) => {
      const { server } = await start({ allowedHosts: ['fresh.example'] });
      expect((await ask(`${server.url}/livez`, { host })).status).toBe(200);
    },
  );
});

describe('writing', () => {
  it('needs the token of the data folder', async () => {
    const { server, seen } = await start();
    const token = await tokenOf(dataDir);
    const post = (authorization?: string) =>
      fetch(`${server.url}/things`, { method: 'POST', headers: authorization ? { authorization } : {} });
    for (const bad of [
      undefined,
      'Bearer',
      'Bearer x',
      `Basic ${token}`,
      `Bearer ${token}x`,
      `Bearer ${token.slice(1)}`,
    ]) {
      expect([bad, (await post(bad)).status]).toEqual([bad, 401]);
    }
    expect((await post(`Bearer ${token}`)).status).toBe(200);
    expect(JSON.stringify(seen)).not.toContain(token);
  });

  it.each(['PUT', 'PATCH', 'DELETE'])('%s is writing too, also where there is nothing', async (method) => {
    const { server } = await start();
    expect((await fetch(`${server.url}/nothing`, { method })).status).toBe(401);
  });

  it('keeps the token in a file for its owner alone, the same each time and for all who start at once', async () => {
    const folder = join(dataDir, 'several');
    const tokens = await Promise.all(Array.from({ length: 8 }, () => tokenOf(folder)));
    expect(new Set(tokens).size).toBe(1);
    expect((await stat(join(folder, 'token'))).mode & 0o777).toBe(0o600);
    expect((await readFile(join(folder, 'token'), 'utf8')).trim()).toMatch(/^[\w-]{43}$/);
    expect(await readdir(folder)).toEqual(['token']);
  });

  it.each(['', '\n', 'fifteen-letters'])('refuses the token file %j', async (text) => {
    const folder = join(dataDir, `short-${text.length}`);
    await mkdir(folder);
    await writeFile(join(folder, 'token'), text);
    await expect(start({ dataDir: folder })).rejects.toMatchObject({ code: 'PGF_TOKEN_TOO_SHORT' });
  });

  it('is closed to all where the token is empty', async () => {
    const app = new Hono().use(guard({ host: '127.0.0.1', allowedHosts: [], token: '', events: new Events() }));
    for (const authorization of ['', 'Bearer', 'Bearer ', 'Bearer x']) {
      const headers = { host: 'localhost', authorization };
      expect((await app.request('/', { method: 'POST', headers })).status).toBe(401);
    }
  });
});

describe('a public address', () => {
  it('is refused without a configured token', async () => {
    await expect(start({ host: '0.0.0.0' })).rejects.toMatchObject({ code: 'PGF_PUBLIC_WITHOUT_TOKEN' });
  });

  it('needs the token for reading too, but not for the health that a load balancer asks', async () => {
    const token = 'a-secret-of-enough-characters';
    const { server } = await start({ host: '0.0.0.0', token });
    const url = server.url.replace('0.0.0.0', '127.0.0.1');
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
    expect((await fetch(`${url}/readyz?verbose`)).status).toBe(401);
    expect((await fetch(`${url}/metrics`)).status).toBe(401);
    expect((await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${token}` } })).status).toBe(200);
  });

  it.each([
    ['192.0.2.7:4400', 200],
    ['[2001:db8::1]', 200],
    ['evil.example', 403],
    ['192.0.2.7.evil.example', 403],
  ])('may be asked for as %j: %i', async (host, status) => {
    const { server } = await start({ host: '0.0.0.0', token: 'a-secret-of-enough-characters' });
    const url = server.url.replace('0.0.0.0', '127.0.0.1');
    expect((await ask(`${url}/livez`, { host })).status).toBe(status);
  });
});

describe('behind a reverse proxy', () => {
  const token = 'a-secret-of-enough-characters';
  it.each([
    { host: 'fresh.example' },
    { host: 'localhost', forwarded: 'for=192.0.2.1' },
    { host: 'localhost', 'x-forwarded-for': '192.0.2.1' },
    { host: 'localhost', 'X-Forwarded-Proto': 'https' },
  ])('%j needs the token for reading, but not for the health', async (headers) => {
    const { server } = await start({ token, allowedHosts: ['fresh.example'] });
    const status = async (path: string, more = {}) =>
      (await ask(server.url + path, { ...(headers as Record<string, string>), ...more })).status;
    expect(await status('/readyz')).toBe(200);
    expect(await status('/livez')).toBe(200);
    expect(await status('/readyz?verbose')).toBe(401);
    expect(await status('/metrics')).toBe(401);
    expect(await status('/metrics', { authorization: `Bearer ${token}` })).toBe(200);
  });
});

it.each([
  ['localhost', true],
  ['::1', true],
  ['127.0.0.1', true],
  ['127.8.8.8', true],
  ['127.0.0.1.evil.example', false],
  ['127.evil.example', false],
  ['0.0.0.0', false],
  ['::', false],
])('%s is this machine only: %s', (host, expected) => {
  expect(isLoopback(host)).toBe(expected);
});

async function takenPort(): Promise<{ port: number; free: () => Promise<void> }> {
  const other = createServer();
  other.listen(0, '127.0.0.1');
  await once(other, 'listening');
  return { port: (other.address() as AddressInfo).port, free: async () => void (await once(other.close(), 'close')) };
}

describe('the port', () => {
  it('that was chosen and is taken is a coded error', async () => {
    const { port, free } = await takenPort();
    await expect(start({ port })).rejects.toMatchObject({
      code: 'PGF_PORT_UNAVAILABLE',
      message: expect.stringContaining(`127.0.0.1:${port}`) as string,
    });
    await free();
  });

  it('moves on from the default one when that is taken, and says so', async () => {
    const servers = [await start({ port: undefined }), await start({ port: undefined })];
    const ports = servers.map(({ seen }) => seen.find((event) => event.type === 'http.listening')!);
    expect(ports[1]!.port).toBeGreaterThan(ports[0]!.port);
    expect(ports[1]!.wanted).toBe(4400);
  });

  it('of an address that is not ours is a coded error', async () => {
    await expect(start({ host: '127.0.0.300', token: 'a-secret-of-enough-characters' })).rejects.toMatchObject({
      code: 'PGF_PORT_UNAVAILABLE',
    });
  });
});

it('truth 26: answers what is not there and what breaks with a code and a next step', async () => {
  const { server, seen } = await start();
  const [missing, broken] = [await fetch(`${server.url}/nope`), await fetch(`${server.url}/broken`)];
  expect([missing.status, await missing.json()]).toEqual([
    404,
    {
      error: {
        code: 'PGF_HTTP_NOT_FOUND',
        message: 'There is nothing at /nope.',
        next: expect.stringMatching(/^Check the path, .*the gateway/) as string,
      },
    },
  ]);
  expect([broken.status, await broken.json()]).toEqual([
    500,
    {
      error: {
        code: 'PGF_HTTP_FAILED',
        message: 'The server failed unexpectedly.',
        next: 'See the log of the server for the reason.',
      },
    },
  ]);
  expect(seen.at(-1)).toEqual({ type: 'http.failed', method: 'GET', path: '/broken', problem: 'oops' });
  expect(await (await fetch(`${server.url}/metrics`)).text()).toContain('pgfresh_events_total{type="http.failed"} 1');
});

it('truth 26: refuses whoever lacks the token, or names another server, with a code and a next step', async () => {
  const { server } = await start();
  const token = await fetch(`${server.url}/things`, { method: 'POST' });
  expect([token.status, token.headers.get('www-authenticate'), await token.json()]).toEqual([
    401,
    'Bearer',
    {
      error: {
        code: 'PGF_HTTP_TOKEN',
        message: 'This request needs the token of the server.',
        next: expect.stringMatching(/^Send "Authorization: Bearer <token>"\. .*PGFRESH_TOKEN/) as string,
      },
    },
  ]);
  const upgrade = { host: 'evil.example', connection: 'upgrade', upgrade: 'websocket' };
  for (const headers of [{ host: 'evil.example' }, upgrade]) {
    const foreign = await ask(`${server.url}/livez`, headers);
    expect([foreign.status, JSON.parse(foreign.body)]).toEqual([
      403,
      {
        error: {
          code: 'PGF_HTTP_HOST',
          message: 'The host "evil.example" is not a name of this server.',
          next: expect.stringContaining('PGFRESH_ALLOWED_HOSTS') as string,
        },
      },
    ]);
  }
  const nowhere = await ask(`${server.url}/nope`, { connection: 'upgrade', upgrade: 'websocket' });
  expect([nowhere.status, JSON.parse(nowhere.body)]).toMatchObject([404, { error: { code: 'PGF_HTTP_NOT_FOUND' } }]);
});

it('stops although a client keeps its connection open', async () => {
  const { server } = await start();
  const { port, hostname } = new URL(server.url);
  const idle = connect(Number(port), hostname);
  await once(idle, 'connect');
  await server.stop();
  idle.destroy();
  await expect(fetch(`${server.url}/livez`)).rejects.toThrow();
});
