import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { tokenOf } from '../gateway/live-scene.ts';
import { Proxy } from '../harness/proxy.ts';
import { clientOf, isInOrder, look, openScript, pass10s, pretendPage, recordSent, useGateway } from './client-scene.ts';

const live = useGateway();

describe('a connection', () => {
  it('that breaks is opened again, and only missed changes are sent', async () => {
    await live.scene.quote('AAPL', 1);
    await live.scene.quote('MSFT', 1);
    const { proxy, url: address } = await Proxy.before(live.url);
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
    await live.scene.quote('AAPL', 2);
    await expect.poll(apple.prices).toEqual([1, 2]);
    expect(statuses.slice(-3)).toEqual(['waiting', 'connecting', 'live']);
    expect(client.error).toBe(null);
    // The rows of MSFT were not sent again: they are the same object.
    expect(new Set(soft.told.map(({ rows }) => rows)).size).toBe(1);
    const versions = sent.filter(({ type }) => type === 'want').at(-1)!.pairs!;
    expect(versions.every((pair) => pair.length === 3)).toBe(true);
    expect(isInOrder(apple.told)).toBe(true);
  });

  it('moves to the next server when it is told to', async () => {
    await live.scene.quote('AAPL', 1);
    const { port } = new URL(live.url);
    const client = await clientOf('ada', { url: live.url });
    const { told, prices } = look(client, 'AAPL');
    await expect.poll(prices).toEqual([1]);
    await live.running.stop();
    await expect.poll(() => client.status).toBe('waiting');
    await live.scene.quote('AAPL', 2);
    live.running = await live.scene.gateway({}, { port: Number(port) });
    await expect.poll(prices).toEqual([1, 2]);
    expect(client.status).toBe('live');
    expect(isInOrder(told)).toBe(true);
    expect(told.at(-1)!.data!.price).toBe(2);
  });

  it('is retried with growing pauses, soon after a steady connection, or when the server asks for it', async () => {
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

  it('reports why it is refused', async () => {
    vi.spyOn(Math, 'random').mockReturnValue(0);
    const client = await clientOf('ada', { url: live.url, token: 'not.a.token' });
    const got = client.get('quote', 'AAPL');
    await expect(got).rejects.toMatchObject({ code: 'PGF_LIVE_TOKEN' });
    expect(client.status).toBe('refused');
    await expect(client.refreshNow('quote', 'AAPL')).rejects.toMatchObject({ code: 'PGF_LIVE_TOKEN' });
  });

  it('reports its current error, and none while it is live', async () => {
    vi.spyOn(Math, 'random').mockReturnValue(0);
    const { proxy, url: address } = await Proxy.before(live.url);
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
    // A malformed message, which the server answers.
    const heard: string[] = [];
    sockets.at(-1)!.addEventListener('message', ({ data }) => heard.push(data as string));
    sockets.at(-1)!.send('{"type":"wish"}');
    await expect.poll(() => heard.join()).toContain('PGF_LIVE_MESSAGE');
    expect([client.status, client.error]).toEqual(['live', null]);
  });

  it('that is dead is detected', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const { proxy, url: address } = await Proxy.before(live.url);
    onTestFinished(() => proxy.close());
    const client = await clientOf('ada', { url: address });
    await client.get('quote', 'AAPL');
    look(client, 'AAPL');
    // One that is merely idle is kept.
    for (let round = 0; round < 4; round++) await pass10s(client);
    expect(client.status).toBe('live');
    proxy.judge = () => 'hold';
    await vi.advanceTimersByTimeAsync(30_001);
    expect(client.status).not.toBe('live');
  });

  it('leaves nothing behind when it is closed', async () => {
    const page = pretendPage();
    const client = await clientOf('ada', { url: live.url });
    await client.get('quote', 'AAPL');
    const { stop } = look(client, 'AAPL');
    expect(page.listeners).toBeGreaterThan(0);
    const pending = client.refreshNow('quote', 'AAPL');
    client.close();
    expect(client.status).toBe('closed');
    expect(page.listeners).toBe(0);
    await expect(pending).rejects.toMatchObject({ code: 'PGF_CLIENT_CLOSED' });
    await expect.poll(() => live.scene.demand()).toEqual([]);
    stop();
    expect(look(client, 'MSFT').told).toEqual([]);
    await expect(client.refreshNow('quote', 'AAPL')).rejects.toMatchObject({ code: 'PGF_CLIENT_CLOSED' });
  });

  it('repeats a refresh that was not answered before it broke', async () => {
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

  it('tracks the clock of the server', async () => {
    const { url: address, sockets } = await openScript();
    const client = await clientOf('ada', { url: address });
    look(client, 'AAPL');
    await expect.poll(() => client.status).toBe('live');
    const hoursAhead = () => Math.round((client.now() - Date.now()) / 3_600_000);
    const say = (type: string, hours: number) => {
      const now = new Date(Date.now() + hours * 3_600_000).toISOString();
      sockets[0]!.send(JSON.stringify({ type, now, expires_at: null, limits: { message_bytes: 1_000 } }));
    };
    // Slightly behind is rounded to -0.
    expect(Math.abs(hoursAhead())).toBe(0);
    say('welcome', 1);
    await expect.poll(hoursAhead).toBe(1);
    say('pong', 2);
    await expect.poll(hoursAhead).toBe(2);
  });

  it('sends its pairs in few messages, in whatever order they are viewed', async () => {
    const sent = recordSent();
    const client = await clientOf('ada', { url: live.url });
    await client.get('quote', 'AAPL');
    const keys = Array.from({ length: 26 }, (_, place) => String.fromCharCode(65 + place));
    const since = Date.now();
    for (const key of keys) {
      look(client, key);
      await new Promise((resolve) => setImmediate(resolve));
    }
    // At most ten per second: the first at once, the last a moment later.
    const most = Math.ceil((Date.now() - since) / 100) + 2;
    await expect.poll(async () => (await live.scene.demand()).length).toBeGreaterThanOrEqual(26);
    expect(sent.filter(({ type }) => type === 'add').length).toBeLessThanOrEqual(most);
  });

  it('can request more pairs than fit into one message', async () => {
    await live.running.stop();
    live.running = await live.scene.gateway({ limits: { messageBytes: '1KB' } });
    const client = await clientOf('ada', { url: live.running.http.url });
    const keys = Array.from(
      { length: 26 * 4 },
      (_, n) => `${String.fromCharCode(65 + (n % 26)).repeat(20)}${'ABCD'[n % 4]}`,
    );
    const all = [...new Set(keys)];
    await Promise.all(all.map((key) => client.get('quote', key)));
    await expect.poll(async () => (await live.scene.demand()).length).toBe(all.length);
  });
});
