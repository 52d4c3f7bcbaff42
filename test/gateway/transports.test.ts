import { once } from 'node:events';
import { connect } from 'node:net';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { EventClient } from './event-client.ts';
import { LiveScene, tokenOf, type RunningGateway } from './live-scene.ts';

let scene: LiveScene;
let running: RunningGateway;
beforeAll(async () => {
  scene = await LiveScene.open();
});
beforeEach(async () => {
  await scene.clear();
  running = await scene.gateway({ origins: ['https://app.example.com'] });
});

const as = async (user: string) => ({ authorization: `Bearer ${await tokenOf(user)}` });
const refusal = async (response: Response) => [
  response.status,
  ((await response.json()) as { error: { code: string } }).error.code,
];

describe('an event stream', () => {
  it('carries the same messages as a WebSocket', async () => {
    await scene.quote('AAPL', 1);
    const stream = await EventClient.open(running.http.url, await as('ada'));
    expect(stream.response.headers.get('content-type')).toBe('text/event-stream');
    const { session } = await stream.next('welcome');
    expect(await stream.say(session as string, { type: 'want', pairs: [['quote', 'aapl']] })).toBe(202);
    expect(await stream.next('answer')).toMatchObject({ pairs: [{ result: 'accepted', key: 'AAPL' }] });
    expect(await stream.next('snapshot')).toMatchObject({ rows: [{ price: 1 }] });
    await expect.poll(() => scene.demand()).toEqual(['quote AAPL 1']);
    await scene.quote('AAPL', 2);
    expect(await stream.next('change')).toMatchObject({ rows: [{ price: 2 }] });
    stream.close();
    await expect.poll(() => scene.demand()).toEqual([]);
  });

  it('belongs to its user', async () => {
    const stream = await EventClient.open(running.http.url, await as('ada'));
    const { session } = await stream.next('welcome');
    const post = async (name: string, user: string, body: string) =>
      refusal(
        await fetch(`${running.http.url}/live/events/${name}`, { method: 'POST', headers: await as(user), body }),
      );
    expect(await post(session as string, 'ben', '{"type":"ping"}')).toEqual([404, 'PGF_LIVE_SESSION']);
    expect(await post('another', 'ada', '{"type":"ping"}')).toEqual([404, 'PGF_LIVE_SESSION']);
    expect(await post(session as string, 'ada', '{')).toEqual([400, 'PGF_LIVE_MESSAGE']);
    expect(await post(session as string, 'ada', `"${'x'.repeat(200_000)}"`)).toEqual([413, 'PGF_LIVE_TOO_LARGE']);
    expect(await stream.say(session as string, { type: 'ping' })).toBe(202);
    await stream.next('pong');
    stream.close();
  });

  it('is refused like a WebSocket', async () => {
    const get = async (query: string, headers: Record<string, string>) =>
      refusal(await fetch(`${running.http.url}/live/events${query}`, { headers }));
    expect(await get('', await as('ada'))).toEqual([400, 'PGF_LIVE_PROTOCOL']);
    expect(await get('?protocol=2', await as('ada'))).toEqual([400, 'PGF_LIVE_PROTOCOL']);
    expect(await get('?protocol=1', {})).toEqual([401, 'PGF_LIVE_TOKEN']);
    expect(await get('?protocol=1', { ...(await as('ada')), origin: 'https://evil.example.com' })).toEqual([
      403,
      'PGF_LIVE_ORIGIN',
    ]);
  });

  it('ends with a reconnect, and an idle connection is not waited for', async () => {
    const stream = await EventClient.open(running.http.url, await as('ada'));
    const { session } = await stream.next('welcome');
    await stream.say(session as string, { type: 'ping' });
    await stream.next('pong');
    // Like the spare connections that browsers open.
    const { port, hostname } = new URL(running.http.url);
    const spare = connect(Number(port), hostname);
    await once(spare, 'connect');
    const since = performance.now();
    const stopped = running.http.stop();
    await stream.next('reconnect');
    await stopped;
    expect(performance.now() - since).toBeLessThan(1_000);
    await stream.ended;
    spare.destroy();
  });
});

describe('a plain request', () => {
  const get = async (path: string, headers: Record<string, string> = {}) =>
    fetch(`${running.http.url}/live/${path}`, { headers: { ...(await as('ada')), ...headers } });

  it('returns the row, with an ETag', async () => {
    await scene.quote('AAPL', 1);
    const first = await get('quote/aapl');
    expect([first.status, await first.json()]).toMatchObject([200, { pair: ['quote', 'AAPL'], rows: [{ price: 1 }] }]);
    const tag = first.headers.get('etag')!;
    const again = await get('quote/AAPL', { 'if-none-match': tag });
    expect([again.status, await again.text()]).toEqual([304, '']);
    await scene.quote('AAPL', 2);
    await expect.poll(async () => (await get('quote/AAPL', { 'if-none-match': tag })).status).toBe(200);
  });

  it('counts as a viewer for a moment, so that a missing row is fetched', async () => {
    const answer = await get('quote/COLD');
    expect(await answer.json()).toMatchObject({ state: 'missing', activity: 'waiting', rows: [] });
    expect(await scene.queued()).toEqual(['quote COLD']);
    await expect.poll(() => scene.demand()).toEqual(['quote COLD 1']);
  });

  it('with a maxAge waits for a younger row', async () => {
    await scene.quote('OLD', 1, '40 seconds');
    expect(await (await get('quote/OLD?maxAge=60')).json()).toMatchObject({ rows: [{ price: 1 }] });
    expect(await scene.queued()).toEqual([]);
    const waiting = get('quote/OLD?maxAge=30');
    await expect.poll(() => scene.queued()).toEqual(['quote OLD']);
    await scene.quote('OLD', 2);
    expect(await (await waiting).json()).toMatchObject({ rows: [{ price: 2 }] });
  });

  it('is refused with a status and a code', async () => {
    expect(await refusal(await get('nothing/A'))).toEqual([404, 'PGF_TYPE_UNKNOWN']);
    expect(await refusal(await get('quote/12'))).toEqual([404, 'PGF_KEY_UNKNOWN']);
    expect(await refusal(await get('quote/A%0AB'))).toEqual([400, 'PGF_KEY_INVALID']);
    expect(await refusal(await get('quote/A?maxAge=soon'))).toEqual([400, 'PGF_LIVE_MESSAGE']);
    expect(await refusal(await get('quote/A', { authorization: 'Bearer no' }))).toEqual([401, 'PGF_LIVE_TOKEN']);
    expect(await refusal(await fetch(`${running.http.url}/live`, { headers: await as('ada') }))).toEqual([
      400,
      'PGF_LIVE_MESSAGE',
    ]);
  });

  it('is limited', async () => {
    const strict = await scene.gateway({ limits: { messagesPerSecond: 1 } });
    const headers = await as('ada');
    const ask = async () => (await fetch(`${strict.http.url}/live/quote/A`, { headers })).status;
    expect([await ask(), await ask()]).toEqual([200, 200]);
    // More requests than the limit allows while they run.
    expect(await Promise.all(Array.from({ length: 60 }, ask))).toContain(429);
  });

  it('allows only pages of allowed origins to read the response', async () => {
    const preflight = (origin: string) =>
      fetch(`${running.http.url}/live/quote/A`, { method: 'OPTIONS', headers: { origin } });
    const allowed = await preflight('https://app.example.com');
    expect([allowed.status, allowed.headers.get('access-control-allow-origin')]).toEqual([
      204,
      'https://app.example.com',
    ]);
    expect((await preflight('https://evil.example.com')).headers.get('access-control-allow-origin')).toBeNull();
  });
});

it('other routes of the server still need the token of the console', async () => {
  const response = await fetch(`${running.http.url}/metrics`, { method: 'POST', headers: await as('ada') });
  expect(response.status).toBe(401);
  expect(await (await fetch(`${running.http.url}/metrics`)).text()).toContain('pgfresh_gateway_refusals_total');
});
