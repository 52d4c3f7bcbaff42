import { once } from 'node:events';
import { describe, expect, it, vi } from 'vitest';
import { tokenOf } from '../gateway/live-scene.ts';
import { clientOf, look, openScript, useGateway } from './client-scene.ts';

const live = useGateway();

describe('a connection', () => {
  it('gets the next token before the current one expires, and loses data that it may no longer see', async () => {
    let asked = 0;
    let allowed = true;
    await live.running.stop();
    live.running = await live.scene.gateway({ authorize: () => allowed });
    await live.scene.quote('AAPL', 1);
    const token = () => {
      asked += 1;
      return tokenOf('ada', { expires: new Date(Date.now() + 5_000) });
    };
    const client = await clientOf('ada', { url: live.running.http.url, token });
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
    expect(live.connections()).toBe(1);
  });

  it('asks for the next token again if there is none yet', async () => {
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
      // It receives messages, so that it is not considered dead.
      socket!.send('{"type":"resync"}');
      socket!.ping();
      await once(socket!, 'pong');
      await vi.advanceTimersByTimeAsync(5_000);
    }
    expect(asked).toBe(3);
    await expect.poll(() => script.heard).toContainEqual({ type: 'auth', token: 'token.3' });
    expect(script.sockets).toHaveLength(1);
  });

  it('waits for a token if there is none yet', async () => {
    vi.spyOn(Math, 'random').mockReturnValue(0);
    let fails = true;
    const errors: unknown[] = [];
    const client = await clientOf('ada', {
      url: live.url,
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

  it('over an event stream uses the next token too', async () => {
    const token = () => tokenOf('ada', { expires: new Date(Date.now() + 4_000) });
    const client = await clientOf('ada', { url: live.url, token, transport: 'events' });
    await live.scene.quote('AAPL', 1);
    await live.scene.quote('MSFT', 2);
    await client.get('quote', 'AAPL');
    look(client, 'AAPL');
    const before = Date.now();
    // The first token is no longer valid.
    await expect.poll(() => Date.now() - before > 4_200).toBe(true);
    expect((await client.get('quote', 'MSFT')).data).toMatchObject({ price: 2 });
    expect(live.connections()).toBe(1);
  });
});
