import { createServer, request, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import { afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { createClient, type FreshClient } from 'pgfresh/client';
import { LiveScene, tokenOf, type RunningGateway } from '../gateway/live-scene.ts';
import { Proxy } from '../harness/proxy.ts';
import { clientOf, isInOrder, look, openScript, pretendPage, recordSent, type Rows } from './client-scene.ts';

let scene: LiveScene;
let running: RunningGateway;
let url: string;
beforeAll(async () => {
  scene = await LiveScene.open();
});
beforeEach(async () => {
  await scene.clear();
  running = await scene.gateway({}, { allowedHosts: ['0.0.0.0'] });
  url = running.http.url;
});

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

/** Lets ten seconds of the client pass, and then waits until the server has said something. */
async function pass10s(client: FreshClient<Rows>): Promise<void> {
  await vi.advanceTimersByTimeAsync(10_000);
  await client.refreshNow('quote', 'AAPL').catch(() => {});
}

const connections = () => running.seen.filter(({ type }) => type === 'gateway.opened').length;

describe('a pair', () => {
  it('is told as it is, and then all that is newer', async () => {
    await scene.quote('AAPL', 1);
    const client = await clientOf('ada', { url });
    expect(client.status).toBe('idle');
    const { told, prices } = look(client, 'AAPL');
    await expect.poll(prices).toEqual([1]);
    expect(client.status).toBe('live');
    const [first] = told;
    expect(first).toMatchObject({ state: 'fresh', reason: 'fresh', data: { key: 'AAPL', price: 1 }, error: null });
    expect(first!.fetchedAt!.getTime()).toBeLessThan(first!.dueAt!.getTime());
    expect(Math.abs(client.now() - Date.now())).toBeLessThan(2_000);
    await scene.quote('AAPL', 2);
    await expect.poll(prices).toEqual([1, 2]);
    expect(told.at(-1)!.version! > first!.version!).toBe(true);
    expect(client.peek('quote', 'AAPL')).toBe(told.at(-1));
  });

  it('is one subscription for ten who look, and none a moment after the last has left', async () => {
    const sent = recordSent();
    const client = await clientOf('ada', { url });
    const lookers = Array.from({ length: 10 }, () => look(client, 'AAPL'));
    await expect.poll(() => scene.demand()).toEqual(['quote AAPL 1']);
    lookers.forEach(({ stop }) => stop());
    // Twice does not count twice.
    lookers.forEach(({ stop }) => stop());
    await expect.poll(() => client.status).toBe('idle');
    await expect.poll(() => scene.demand()).toEqual([]);
    expect(sent.filter(({ type }) => type === 'want').map(({ pairs }) => pairs)).toEqual([[['quote', 'AAPL']]]);
    expect(client.peek('quote', 'AAPL').state).toBe('loading');
  });

  it('costs nothing when a component comes and goes', async () => {
    const sent = recordSent();
    const client = await clientOf('ada', { url });
    const stay = look(client, 'MSFT');
    await client.get('quote', 'AAPL');
    for (let turn = 0; turn < 50; turn++) {
      const { stop } = look(client, 'AAPL');
      await new Promise(setImmediate);
      stop();
    }
    await expect.poll(() => scene.demand()).toEqual(['quote MSFT 1']);
    expect(sent.map(({ type }) => type)).toEqual(['hello', 'want', 'drop']);
    stay.stop();
  });

  it('is the same however its key is written', async () => {
    await scene.quote('MSFT', 1);
    const client = await clientOf('ada', { url });
    const [small, large] = [look(client, 'msft'), look(client, 'MSFT')];
    await expect.poll(small.prices).toEqual([1]);
    await expect.poll(large.prices).toEqual([1]);
    small.stop();
    // Who leaves twice does not take another along.
    const { stop } = look(client, 'MSFT');
    for (let turn = 0; turn < 5; turn++) stop();
    // The moment after which it is let go.
    await expect.poll(() => client.peek('quote', 'msft').state).toBe('loading');
    await scene.quote('MSFT', 2);
    await expect.poll(large.prices).toEqual([1, 2]);
    expect(await scene.demand()).toEqual(['quote MSFT 1']);
    large.stop();
    await expect.poll(() => scene.demand()).toEqual([]);
  });

  it('that is refused spoils no other, and is asked for again', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    await scene.db.query(`update pgfresh.data_type_registry set key_pattern = '^[A-Z]{4}$'`);
    await scene.quote('AAPL', 1);
    const client = await clientOf('ada', { url });
    const [good, bad] = [look(client, 'AAPL'), look(client, 'X')];
    await expect.poll(good.prices).toEqual([1]);
    await expect.poll(() => bad.told.at(-1)).toMatchObject({ state: 'refused', error: { code: 'PGF_KEY_UNKNOWN' } });
    await expect(client.get('quote', 'X')).rejects.toMatchObject({ name: 'FreshError', code: 'PGF_KEY_UNKNOWN' });
    await scene.db.query(`update pgfresh.data_type_registry set key_pattern = '^[A-Z]+$'`);
    for (let round = 0; round < 6; round++) await pass10s(client);
    await expect.poll(() => bad.told.at(-1)?.error).toBe(null);
    expect(connections()).toBe(1);
  });

  it.each([
    ['', 'AAPL'],
    ['quote', ''],
    ['quote', undefined as unknown as string],
    ['quote', 'x'.repeat(513)],
  ])('must be named: %j %.10j', async (type, key) => {
    const client = createClient({ url });
    expect(() => client.subscribe(type, key)).toThrow(expect.objectContaining({ code: 'PGF_CLIENT_PAIR' }));
    await expect(client.get(type, key)).rejects.toMatchObject({ code: 'PGF_CLIENT_PAIR' });
    await expect(client.refreshNow(type, key)).rejects.toMatchObject({ code: 'PGF_CLIENT_PAIR' });
    expect(client.status).toBe('idle');
  });

  it('is got once', async () => {
    await scene.quote('AAPL', 7);
    const client = await clientOf('ada', { url });
    expect((await client.get('quote', 'AAPL')).data).toMatchObject({ price: 7 });
    await expect.poll(() => client.status).toBe('idle');
    client.close();
    await expect(client.get('quote', 'AAPL')).rejects.toMatchObject({ code: 'PGF_CLIENT_CLOSED' });
  });

  it('is refreshed now, whether somebody looks or not', async () => {
    const client = await clientOf('ada', { url });
    await scene.quote('AAPL', 1);
    expect(await client.refreshNow('quote', 'aapl')).toBe('queued');
    expect(await scene.queued()).toEqual(['quote AAPL']);
    expect(await client.refreshNow('quote', 'AAPL')).toBe('recent');
    await expect(client.refreshNow('quote', 'no key')).rejects.toMatchObject({ code: 'PGF_KEY_UNKNOWN' });
  });

  it('that somebody looks at is not let go after a refresh', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const client = await clientOf('ada', { url });
    const { told } = look(client, 'AAPL');
    await expect.poll(() => told.length).toBeGreaterThan(0);
    await client.refreshNow('quote', 'AAPL');
    vi.advanceTimersByTime(1_000);
    expect(client.peek('quote', 'AAPL').state).not.toBe('loading');
  });

  it('tells how many look', async () => {
    const [ada, bob] = [await clientOf('ada', { url }), await clientOf('bob', { url })];
    const told: unknown[] = [];
    ada.onViewers('quote', 'AAPL', (viewers) => told.push(viewers));
    look(bob, 'AAPL');
    await expect.poll(() => scene.demand()).toEqual(['quote AAPL 2']);
    await scene.db.query('select pgfresh.plan_due_pairs()');
    await expect.poll(() => told.at(-1)).toBe(2);
    expect(ada.viewers('quote', 'AAPL')).toBe(2);
    expect(bob.viewers('quote', 'AAPL')).toBe(undefined);
  });

  it('whose listener throws does not keep others from being told, and can be left', async () => {
    const thrown: unknown[] = [];
    const real = process.listeners('uncaughtException');
    process.removeAllListeners('uncaughtException');
    process.on('uncaughtException', (error) => thrown.push(error.message));
    onTestFinished(() => {
      process.removeAllListeners('uncaughtException');
      real.forEach((listener) => process.on('uncaughtException', listener));
    });
    await scene.quote('AAPL', 1);
    const client = await clientOf('ada', { url });
    const throwing = (): never => {
      throw new Error('of the page');
    };
    const stops = [client.subscribe('quote', 'AAPL', throwing)];
    const { prices, stop } = look(client, 'AAPL');
    await expect.poll(prices).toEqual([1]);
    await expect.poll(() => thrown).toEqual(['of the page']);
    // Also where something is known already.
    stops.push(client.subscribe('quote', 'AAPL', throwing), stop);
    await expect.poll(() => thrown).toHaveLength(2);
    stops.forEach((each) => each());
    await expect.poll(() => client.status).toBe('idle');
  });
});

describe('a connection', () => {
  it('that breaks is made again, and only what was missed is said', async () => {
    await scene.quote('AAPL', 1);
    await scene.quote('MSFT', 1);
    const { proxy, url: address } = await Proxy.before(url);
    onTestFinished(() => proxy.close());
    const sent = recordSent();
    const client = await clientOf('ada', { url: address });
    const [apple, soft] = [look(client, 'AAPL'), look(client, 'MSFT')];
    await expect.poll(apple.prices).toEqual([1]);
    await expect.poll(soft.prices).toEqual([1]);
    const statuses: string[] = [];
    const errors: unknown[] = [];
    client.onStatus((status) => {
      statuses.push(status);
      if (status === 'waiting') errors.push(client.error);
    });
    proxy.cut();
    await expect.poll(() => errors[0]).toMatchObject({ code: 'PGF_CLIENT_UNREACHABLE' });
    await scene.quote('AAPL', 2);
    await expect.poll(apple.prices).toEqual([1, 2]);
    expect(statuses.slice(-3)).toEqual(['waiting', 'connecting', 'live']);
    expect(client.error).toBe(null);
    // The rows of MSFT were not sent again: they are the same object.
    expect(new Set(soft.told.map(({ rows }) => rows)).size).toBe(1);
    const versions = sent.filter(({ type }) => type === 'want').at(-1)!.pairs!;
    expect(versions.every((pair) => pair.length === 3)).toBe(true);
    expect(isInOrder(apple.told)).toBe(true);
  });

  it('goes on with the next server, where it was asked to', async () => {
    await scene.quote('AAPL', 1);
    const { port } = new URL(url);
    const client = await clientOf('ada', { url });
    const { told, prices } = look(client, 'AAPL');
    await expect.poll(prices).toEqual([1]);
    await running.stop();
    await expect.poll(() => client.status).toBe('waiting');
    await scene.quote('AAPL', 2);
    running = await scene.gateway({}, { port: Number(port) });
    await expect.poll(prices).toEqual([1, 2]);
    expect(client.status).toBe('live');
    expect(isInOrder(told)).toBe(true);
    expect(told.at(-1)!.data!.price).toBe(2);
  });

  it('is made again later each time that it fails, soon after one that was steady, or when the server has asked', async () => {
    vi.spyOn(Math, 'random').mockReturnValue(1);
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] });
    const { url: address, sockets } = await openScript();
    const client = await clientOf('ada', { url: address });
    const since: Partial<Record<string, number>> = {};
    client.onStatus((status) => (since[status] = Date.now()));
    look(client, 'AAPL');
    const pauseAfter = async (liveMs: number, lastWord = '{"type":"resync"}'): Promise<number> => {
      const place = sockets.length;
      await expect.poll(() => [client.status, sockets.length]).toEqual(['live', place + 1]);
      vi.setSystemTime(Date.now() + liveMs);
      sockets[place]!.send(lastWord);
      sockets[place]!.close();
      await expect.poll(() => client.status).toBe('waiting');
      vi.advanceTimersByTime(10_000);
      return since['connecting']! - since['waiting']!;
    };
    expect(await pauseAfter(0)).toBe(1_000);
    expect(await pauseAfter(3_000)).toBe(2_000);
    expect(await pauseAfter(5_001)).toBe(500);
    expect(await pauseAfter(0)).toBe(1_000);
    expect(await pauseAfter(0, '{"type":"reconnect","after_ms":7000}')).toBe(7_000);
  });

  it('goes by requests where WebSockets are broken', async () => {
    vi.spyOn(Math, 'random').mockReturnValue(0);
    await scene.quote('AAPL', 1);
    await scene.quote('MSFT', 5);
    const between = await withoutWebSockets(url);
    const client = await clientOf('ada', { url: between.url });
    const { prices, stop } = look(client, 'aapl');
    await expect.poll(prices).toEqual([1]);
    await scene.quote('AAPL', 2);
    await expect.poll(prices).toEqual([1, 2]);
    expect(running.seen).toContainEqual({ type: 'gateway.opened', transport: 'events' });
    // It asks for the pair and then for its refresh, and one does not overtake the other.
    expect(await client.refreshNow('quote', 'NVDA')).toBeTypeOf('string');
    expect(between.most).toBe(1);
    // What the server could not take is said again.
    between.refusesNext = true;
    expect((await client.get('quote', 'MSFT')).data).toMatchObject({ price: 5 });
    expect(between.refusesNext).toBe(false);
    stop();
    await expect.poll(() => scene.demand()).toEqual([]);
  });

  it('says why it is refused', async () => {
    vi.spyOn(Math, 'random').mockReturnValue(0);
    const client = await clientOf('ada', { url, token: 'not.a.token' });
    const got = client.get('quote', 'AAPL');
    await expect(got).rejects.toMatchObject({ code: 'PGF_LIVE_TOKEN' });
    expect(client.status).toBe('refused');
    await expect(client.refreshNow('quote', 'AAPL')).rejects.toMatchObject({ code: 'PGF_LIVE_TOKEN' });
  });

  it('gets the next token before this one expires, and what it may not see any more is taken away', async () => {
    let asked = 0;
    let allowed = true;
    await running.stop();
    running = await scene.gateway({ authorize: () => allowed });
    await scene.quote('AAPL', 1);
    const token = () => {
      asked += 1;
      return tokenOf('ada', { expires: new Date(Date.now() + 3_000) });
    };
    const client = await clientOf('ada', { url: running.http.url, token });
    const { told, prices } = look(client, 'AAPL');
    await expect.poll(prices).toEqual([1]);
    await expect.poll(() => asked).toBe(2);
    allowed = false;
    await expect.poll(() => asked).toBe(3);
    await expect
      .poll(() => told.at(-1))
      .toMatchObject({
        state: 'refused',
        data: undefined,
        error: { code: 'PGF_LIVE_FORBIDDEN' },
      });
    expect(client.status).toBe('live');
    expect(connections()).toBe(1);
  });

  it('asks for the next token again, if that can not be had now', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'] });
    const script = await openScript(new Date(Date.now() + 60_000));
    let asked = 0;
    const token = () => {
      asked += 1;
      if (asked === 2) throw new Error('the login is down');
      return `token.${asked}`;
    };
    const client = await clientOf('ada', { url: script.url, token });
    look(client, 'AAPL');
    await expect.poll(() => client.status).toBe('live');
    const [socket] = script.sockets;
    for (let left = 55_000; left > 0; left -= 5_000) {
      // It hears something, and is therefore not taken for dead.
      socket!.send('{"type":"resync"}');
      socket!.ping();
      await once(socket!, 'pong');
      await vi.advanceTimersByTimeAsync(5_000);
    }
    expect(asked).toBe(3);
    await expect.poll(() => script.heard).toContainEqual({ type: 'auth', token: 'token.3' });
    expect(script.sockets).toHaveLength(1);
  });

  it('waits for a token that can not be had now', async () => {
    vi.spyOn(Math, 'random').mockReturnValue(0);
    let fails = true;
    const errors: unknown[] = [];
    const client = await clientOf('ada', {
      url,
      token: () => {
        if (fails) throw new Error('the login is down');
        return tokenOf('ada');
      },
    });
    client.onStatus((status) => status === 'waiting' && errors.push(client.error));
    look(client, 'AAPL');
    await expect.poll(() => errors[0]).toMatchObject({ code: 'PGF_CLIENT_TOKEN' });
    expect((errors[0] as Error).message).toContain('the login is down');
    fails = false;
    await expect.poll(() => client.status).toBe('live');
  });

  it('by requests gets the next token too, and goes on with it', async () => {
    const token = () => tokenOf('ada', { expires: new Date(Date.now() + 2_000) });
    const client = await clientOf('ada', { url, token, transport: 'events' });
    await scene.quote('AAPL', 1);
    await scene.quote('MSFT', 2);
    await client.get('quote', 'AAPL');
    look(client, 'AAPL');
    const before = Date.now();
    // The first token is no good any more.
    await expect.poll(() => Date.now() - before > 2_200).toBe(true);
    expect((await client.get('quote', 'MSFT')).data).toMatchObject({ price: 2 });
    expect(connections()).toBe(1);
  });

  it('says what is wrong now, and nothing while it is live', async () => {
    vi.spyOn(Math, 'random').mockReturnValue(0);
    const { proxy, url: address } = await Proxy.before(url);
    onTestFinished(() => proxy.close());
    proxy.judge = () => 'cut';
    let fails = true;
    const token = () => {
      if (fails) throw new Error('the login is down');
      return tokenOf('ada');
    };
    const sockets: WebSocket[] = [];
    const real = globalThis.WebSocket;
    globalThis.WebSocket = class extends real {
      constructor(...given: ConstructorParameters<typeof real>) {
        super(...given);
        sockets.push(this);
      }
    };
    onTestFinished(() => void (globalThis.WebSocket = real));
    const client = await clientOf('ada', { url: address, token, transport: 'websocket' });
    look(client, 'AAPL');
    await expect.poll(() => client.error?.code).toBe('PGF_CLIENT_TOKEN');
    fails = false;
    await expect.poll(() => client.error?.code).toBe('PGF_CLIENT_UNREACHABLE');
    proxy.judge = () => 'pass';
    await expect.poll(() => client.status).toBe('live');
    expect(client.error).toBe(null);
    // Something that the server does not understand, and answers.
    const heard: string[] = [];
    sockets.at(-1)!.addEventListener('message', ({ data }) => heard.push(data as string));
    sockets.at(-1)!.send('{"type":"wish"}');
    await expect.poll(() => heard.join()).toContain('PGF_LIVE_MESSAGE');
    expect([client.status, client.error]).toEqual(['live', null]);
  });

  it('that is asked for a sign of life when the page is shown has time to give it', async () => {
    const page = pretendPage();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const sent = recordSent();
    const client = await clientOf('ada', { url });
    await client.get('quote', 'AAPL');
    look(client, 'AAPL');
    const statuses: string[] = [];
    client.onStatus((status) => statuses.push(status));
    // All that came was heard, and a moment later it is looked at again.
    await vi.advanceTimersByTimeAsync(19_999);
    page.hidden = true;
    page.hidden = false;
    expect(sent.at(-1)).toEqual({ type: 'ping' });
    vi.advanceTimersByTime(1);
    expect(client.status).toBe('live');
    // A refresh is answered after the ping was.
    await client.refreshNow('quote', 'AAPL');
    await vi.advanceTimersByTimeAsync(3_000);
    expect(statuses).toEqual([]);
    expect(connections()).toBe(1);
  });

  it('that is dead is noticed', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const { proxy, url: address } = await Proxy.before(url);
    onTestFinished(() => proxy.close());
    const client = await clientOf('ada', { url: address });
    await client.get('quote', 'AAPL');
    look(client, 'AAPL');
    // One that only has nothing to say is left alone.
    for (let round = 0; round < 4; round++) await pass10s(client);
    expect(client.status).toBe('live');
    proxy.judge = () => 'hold';
    await vi.advanceTimersByTimeAsync(30_001);
    expect(client.status).not.toBe('live');
  });

  it('is let go by a page that stays hidden, and there again with the newest when it is shown', async () => {
    const page = pretendPage();
    await scene.quote('AAPL', 1);
    const client = await clientOf('ada', { url, hiddenFor: 100 });
    const { prices } = look(client, 'AAPL');
    await expect.poll(prices).toEqual([1]);
    page.hidden = true;
    await expect.poll(() => client.status).toBe('resting');
    await expect.poll(() => scene.demand()).toEqual([]);
    await scene.quote('AAPL', 2);
    page.hidden = false;
    await expect.poll(prices).toEqual([1, 2]);
    expect(client.status).toBe('live');
  });

  it.each([1_000, Infinity])('is kept by a page that is hidden for less than %s ms', async (hiddenFor) => {
    const page = pretendPage();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const client = await clientOf('ada', { url, hiddenFor });
    await client.get('quote', 'AAPL');
    look(client, 'AAPL');
    page.hidden = true;
    vi.advanceTimersByTime(999);
    page.hidden = false;
    expect(client.status).toBe('live');
    // The time begins anew with the next one.
    vi.advanceTimersByTime(999);
    page.hidden = true;
    vi.advanceTimersByTime(999);
    expect(client.status).toBe('live');
    vi.advanceTimersByTime(1);
    expect(client.status).toBe(hiddenFor === Infinity ? 'live' : 'resting');
    expect(connections()).toBe(1);
  });

  it('is not tried without a network, but on this machine', async () => {
    const page = pretendPage();
    page.offline = true;
    const [near, far] = [
      await clientOf('ada', { url }),
      await clientOf('ada', { url: url.replace('127.0.0.1', '0.0.0.0') }),
    ];
    look(near, 'AAPL');
    look(far, 'AAPL');
    await expect.poll(() => near.status).toBe('live');
    expect(far.status).toBe('offline');
    page.offline = false;
    await expect.poll(() => far.status).toBe('live');
    page.offline = true;
    expect([near.status, far.status]).toEqual(['live', 'offline']);
  });

  it('leaves nothing behind when it is closed', async () => {
    const page = pretendPage();
    const client = await clientOf('ada', { url });
    await client.get('quote', 'AAPL');
    const { stop } = look(client, 'AAPL');
    expect(page.listeners).toBeGreaterThan(0);
    const pending = client.refreshNow('quote', 'AAPL');
    client.close();
    expect(client.status).toBe('closed');
    expect(page.listeners).toBe(0);
    await expect(pending).rejects.toMatchObject({ code: 'PGF_CLIENT_CLOSED' });
    await expect.poll(() => scene.demand()).toEqual([]);
    stop();
    expect(look(client, 'MSFT').told).toEqual([]);
    await expect(client.refreshNow('quote', 'AAPL')).rejects.toMatchObject({ code: 'PGF_CLIENT_CLOSED' });
  });

  it('asks again for a refresh that was not answered before it broke', async () => {
    const { url: address, sockets, heard } = await openScript();
    const client = await clientOf('ada', { url: address });
    const refresh = client.refreshNow('quote', 'AAPL');
    const asked = () => heard.filter((message) => (message as { type: string }).type === 'refresh');
    await expect.poll(asked).toHaveLength(1);
    sockets[0]!.close();
    await expect.poll(asked).toHaveLength(2);
    sockets[1]!.send('{"type":"refresh","pair":["quote","AAPL"],"result":"queued"}');
    expect(await refresh).toBe('queued');
  });

  it('knows the clock of the server', async () => {
    const { url: address, sockets } = await openScript();
    const client = await clientOf('ada', { url: address });
    look(client, 'AAPL');
    await expect.poll(() => client.status).toBe('live');
    const hoursAhead = () => Math.round((client.now() - Date.now()) / 3_600_000);
    const say = (type: string, hours: number) => {
      const now = new Date(Date.now() + hours * 3_600_000).toISOString();
      sockets[0]!.send(JSON.stringify({ type, now, expires_at: null, limits: { message_bytes: 1_000 } }));
    };
    // A moment behind is rounded to -0.
    expect(Math.abs(hoursAhead())).toBe(0);
    say('welcome', 1);
    await expect.poll(hoursAhead).toBe(1);
    say('pong', 2);
    await expect.poll(hoursAhead).toBe(2);
  });

  it('says what is looked at in few messages, however it comes', async () => {
    const sent = recordSent();
    const client = await clientOf('ada', { url });
    await client.get('quote', 'AAPL');
    const keys = Array.from({ length: 26 }, (_, place) => String.fromCharCode(65 + place));
    for (const key of keys) {
      look(client, key);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    await expect.poll(async () => (await scene.demand()).length).toBeGreaterThanOrEqual(26);
    expect(sent.filter(({ type }) => type === 'add').length).toBeLessThan(8);
  });

  it('wants more pairs than one message has room for', async () => {
    await running.stop();
    running = await scene.gateway({ limits: { messageBytes: '1KB' } });
    const client = await clientOf('ada', { url: running.http.url });
    const keys = Array.from(
      { length: 26 * 4 },
      (_, n) => `${String.fromCharCode(65 + (n % 26)).repeat(20)}${'ABCD'[n % 4]}`,
    );
    const all = [...new Set(keys)];
    await Promise.all(all.map((key) => client.get('quote', key)));
    await expect.poll(async () => (await scene.demand()).length).toBe(all.length);
  });
});

describe('createClient', () => {
  it.each(['', 'live.example.com', 'ftp://example.com', '/live'])('refuses the address %j', (address) => {
    expect(() => createClient({ url: address })).toThrow(expect.objectContaining({ code: 'PGF_CLIENT_URL' }));
  });

  it('needs no address where nobody looks, as on a server that renders', async () => {
    const client = createClient();
    expect(client.peek('quote', 'AAPL').state).toBe('loading');
    expect(() => client.subscribe('quote', 'AAPL')).toThrow(expect.objectContaining({ code: 'PGF_CLIENT_URL' }));
    await expect(client.refreshNow('quote', 'AAPL')).rejects.toMatchObject({ code: 'PGF_CLIENT_URL' });
  });
});

interface Between {
  readonly url: string;
  /** How many messages were on their way at the same time. */
  most: number;
  /** Whether the next message is not taken. */
  refusesNext: boolean;
}

/** A server between, that knows nothing of WebSockets, and takes its time. */
async function withoutWebSockets(target: string): Promise<Between> {
  let underway = 0;
  const server = createServer((incoming, outgoing) => {
    if (incoming.method === 'GET') return passOn(incoming, outgoing);
    underway += 1;
    between.most = Math.max(between.most, underway);
    outgoing.on('close', () => (underway -= 1));
    if (!between.refusesNext) return void setTimeout(() => passOn(incoming, outgoing), 20);
    between.refusesNext = false;
    return void outgoing.writeHead(503).end();
  });
  const passOn = (incoming: IncomingMessage, outgoing: ServerResponse): void => {
    const { host: _host, ...headers } = incoming.headers;
    const sent = request(`${target}${incoming.url}`, { method: incoming.method!, headers }, (answer) => {
      outgoing.writeHead(answer.statusCode!, answer.headers);
      answer.pipe(outgoing);
      outgoing.on('close', () => sent.destroy());
    });
    sent.on('error', () => outgoing.destroy());
    incoming.pipe(sent);
  };
  server.on('upgrade', (_, socket) => socket.destroy());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(async () => {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  });
  const between = { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, most: 0, refusesNext: false };
  return between;
}
