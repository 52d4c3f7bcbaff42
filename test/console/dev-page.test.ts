import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import { request, type IncomingMessage } from 'node:http';
import { expect, it } from 'vitest';
import { resolveConfig } from '../../src/config/index.ts';
import { consoleRoutes, devPage } from '../../src/console/index.ts';
import type { Queryable } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { HttpServer } from '../../src/http/index.ts';
import { Health, Metrics, readOverview, shared } from '../../src/watch/index.ts';
import { atEnd, createDatabase, openDatabase } from '../harness/database.ts';
import { temporaryFolder } from '../harness/folder.ts';

const dataDir = await temporaryFolder('dev-page');

interface ServerOptions {
  readonly db: Queryable;
  readonly host?: string;
  readonly page?: (request: Request) => Response;
}

async function serve({ db, host = '127.0.0.1', page }: ServerOptions): Promise<string> {
  const events = new Events();
  const health = new Health();
  const status = async () => ({ version: '1', roles: [], database: 'here', health: await health.report() });
  const server = new HttpServer({
    settings: resolveConfig({ config: { port: 0, dataDir, host, token: 'x'.repeat(32) } }).settings,
    events,
    health,
    metrics: new Metrics(events),
    routes: (app) => consoleRoutes(app, { overview: shared(() => readOverview(db)), jobs: async () => [], status }),
    mounts: page ? [devPage(page, host)] : [],
  });
  atEnd(() => server.stop());
  await server.start();
  return server.url.replace('0.0.0.0', '127.0.0.1');
}
atEnd(() => rm(dataDir, { recursive: true }));

async function ask(url: string, headers: Record<string, string> = {}, method = 'GET'): Promise<[number, string]> {
  const sent = request(url, { method, headers });
  sent.end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  return [response.statusCode!, await new Response(response as never).text()];
}

const db = openDatabase(await createDatabase());
const page = ({ method, url }: Request) => new Response(`${method} ${new URL(url).pathname}`);

it('has the page of development at / and below /dev, and lets it write', async () => {
  const url = await serve({ db, page });
  expect(await ask(`${url}/`)).toEqual([200, 'GET /']);
  expect(await ask(`${url}/dev/things`, {}, 'PUT')).toEqual([200, 'PUT /dev/things']);
  expect(await ask(`${url}/dev/things`, { origin: url }, 'PUT')).toEqual([200, 'PUT /dev/things']);
  expect(await ask(`${url}/status`)).toEqual([200, expect.stringContaining('ready</small>')]);
});

it.each([
  ['a page of another site', { origin: 'https://evil.example' }],
  ['a page of another port', { origin: 'http://127.0.0.1:1' }],
  ['a page without an origin', { origin: 'null' }],
  ['a name that is not ours', { host: 'evil.example' }],
])('refuses %s', async (_who, headers) => {
  const url = await serve({ db, page });
  for (const method of ['GET', 'PUT', 'POST']) expect((await ask(`${url}/dev/things`, headers, method))[0]).toBe(403);
});

it('is not there for whoever comes through a proxy, or where others can come', async () => {
  const local = await serve({ db, page });
  const forwarded = { 'x-forwarded-for': '1.2.3.4', authorization: `Bearer ${'x'.repeat(32)}` };
  expect((await ask(`${local}/dev/things`, forwarded, 'PUT'))[0]).toBe(404);
  const open = await serve({ db, page, host: '0.0.0.0' });
  expect((await ask(`${open}/dev/things`, {}, 'PUT'))[0]).toBe(404);
  expect((await ask(`${open}/`, { authorization: forwarded.authorization }))[0]).toBe(302);
});

it('shows the status at / where there is no such page', async () => {
  const url = await serve({ db });
  const home = await fetch(url);
  expect([home.url, home.status]).toEqual([`${url}/status`, 200]);
  expect(await home.text()).toContain('/api/overview');
});

it('reads the overview once for all who ask at the same time, and says when it cannot', async () => {
  let reads = 0;
  const [began, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const counting: Queryable = {
    query: async <Row extends object>(...asked: Parameters<Queryable['query']>) => {
      reads++;
      began.resolve();
      await gate.promise;
      return db.query<Row>(...asked);
    },
  };
  const url = await serve({ db: counting });
  const wanted = Array.from({ length: 20 }, () => fetch(`${url}/api/overview`).then((answer) => answer.json()));
  await began.promise;
  gate.resolve();
  const answers = await Promise.all(wanted);
  expect(answers[0]).toMatchObject({ freshness: { pairs: 0 }, sources: [] });
  expect(new Set(answers.map((answer) => JSON.stringify(answer))).size).toBe(1);
  expect(reads).toBe(1);

  const broken = await serve({ db: { query: () => Promise.reject(new Error('away')) } });
  const answer = await fetch(`${broken}/api/overview`);
  expect([answer.status, await answer.json()]).toEqual([
    503,
    { error: expect.objectContaining({ code: 'PGF_HTTP_UNAVAILABLE' }) },
  ]);
});
