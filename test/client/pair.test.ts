import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { createClient } from 'pgfresh/client';
import { clientOf, look, pass10s, recordSent, useGateway } from './client-scene.ts';

const live = useGateway();

describe('a pair', () => {
  it('delivers its current state, and then every newer one', async () => {
    await live.scene.quote('AAPL', 1);
    const client = await clientOf('ada', { url: live.url });
    expect(client.status).toBe('idle');
    const { told, prices } = look(client, 'AAPL');
    await expect.poll(prices).toEqual([1]);
    expect(client.status).toBe('live');
    const [first] = told;
    expect(first).toMatchObject({
      status: 'ready',
      state: 'fresh',
      activity: 'idle',
      data: { key: 'AAPL', price: 1 },
      error: null,
    });
    expect(first!.fetchedAt!.getTime()).toBeLessThan(first!.staleAt!.getTime());
    expect(Math.abs(client.now() - Date.now())).toBeLessThan(2_000);
    await live.scene.quote('AAPL', 2);
    await expect.poll(prices).toEqual([1, 2]);
    expect(told.at(-1)!.version! > first!.version!).toBe(true);
    expect(client.peek('quote', 'AAPL')).toBe(told.at(-1));
  });

  it('is one subscription for ten listeners, and none a moment after the last has left', async () => {
    const sent = recordSent();
    const client = await clientOf('ada', { url: live.url });
    const lookers = Array.from({ length: 10 }, () => look(client, 'AAPL'));
    await expect.poll(() => live.scene.demand()).toEqual(['quote AAPL 1']);
    lookers.forEach(({ stop }) => stop());
    // Stopping twice does not count twice.
    lookers.forEach(({ stop }) => stop());
    await expect.poll(() => client.status).toBe('idle');
    await expect.poll(() => live.scene.demand()).toEqual([]);
    expect(sent.filter(({ type }) => type === 'want').map(({ pairs }) => pairs)).toEqual([[['quote', 'AAPL']]]);
    expect(client.peek('quote', 'AAPL').state).toBe('loading');
  });

  it('causes no messages when a component is remounted', async () => {
    const sent = recordSent();
    const client = await clientOf('ada', { url: live.url });
    const stay = look(client, 'MSFT');
    await client.get('quote', 'AAPL');
    for (let turn = 0; turn < 50; turn++) {
      const { stop } = look(client, 'AAPL');
      await new Promise(setImmediate);
      stop();
    }
    await expect.poll(() => live.scene.demand()).toEqual(['quote MSFT 1']);
    expect(sent.map(({ type }) => type)).toEqual(['hello', 'want', 'drop']);
    stay.stop();
  });

  it('is the same in every spelling of its key', async () => {
    await live.scene.quote('MSFT', 1);
    const client = await clientOf('ada', { url: live.url });
    const [small, large] = [look(client, 'msft'), look(client, 'MSFT')];
    await expect.poll(small.prices).toEqual([1]);
    await expect.poll(large.prices).toEqual([1]);
    small.stop();
    // Stopping twice does not end another subscription.
    const { stop } = look(client, 'MSFT');
    for (let turn = 0; turn < 5; turn++) stop();
    // The time for which it lingers.
    await expect.poll(() => client.peek('quote', 'msft').state).toBe('loading');
    await live.scene.quote('MSFT', 2);
    await expect.poll(large.prices).toEqual([1, 2]);
    expect(await live.scene.demand()).toEqual(['quote MSFT 1']);
    large.stop();
    await expect.poll(() => live.scene.demand()).toEqual([]);
  });

  it('that is refused does not affect others, and is requested again', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    await live.scene.db.query(`update pgfresh.data_type_registry set key_pattern = '^[A-Z]{4}$'`);
    await live.scene.quote('AAPL', 1);
    const client = await clientOf('ada', { url: live.url });
    const [good, bad] = [look(client, 'AAPL'), look(client, 'X')];
    await expect.poll(good.prices).toEqual([1]);
    await expect.poll(() => bad.told.at(-1)).toMatchObject({ state: 'refused', error: { code: 'PGF_KEY_UNKNOWN' } });
    await expect(client.get('quote', 'X')).rejects.toMatchObject({ name: 'FreshError', code: 'PGF_KEY_UNKNOWN' });
    await live.scene.db.query(`update pgfresh.data_type_registry set key_pattern = '^[A-Z]+$'`);
    for (let round = 0; round < 6; round++) await pass10s(client);
    await expect.poll(() => bad.told.at(-1)?.error).toBe(null);
    expect(live.connections()).toBe(1);
  });

  it.each([
    ['', 'AAPL'],
    ['quote', ''],
    ['quote', undefined as unknown as string],
    ['quote', 'x'.repeat(513)],
  ])('must be named: %j %.10j', async (type, key) => {
    const client = createClient({ url: live.url });
    expect(() => client.subscribe(type, key)).toThrow(expect.objectContaining({ code: 'PGF_CLIENT_PAIR' }));
    await expect(client.get(type, key)).rejects.toMatchObject({ code: 'PGF_CLIENT_PAIR' });
    await expect(client.refreshNow(type, key)).rejects.toMatchObject({ code: 'PGF_CLIENT_PAIR' });
    expect(client.status).toBe('idle');
  });

  it('is returned once by get', async () => {
    await live.scene.quote('AAPL', 7);
    const client = await clientOf('ada', { url: live.url });
    expect((await client.get('quote', 'AAPL')).data).toMatchObject({ price: 7 });
    await expect.poll(() => client.status).toBe('idle');
    client.close();
    await expect(client.get('quote', 'AAPL')).rejects.toMatchObject({ code: 'PGF_CLIENT_CLOSED' });
  });

  it('is refreshed now, with or without listeners', async () => {
    const client = await clientOf('ada', { url: live.url });
    await live.scene.quote('AAPL', 1);
    expect(await client.refreshNow('quote', 'aapl')).toBe('queued');
    expect(await live.scene.queued()).toEqual(['quote AAPL']);
    expect(await client.refreshNow('quote', 'AAPL')).toBe('recent');
    await expect(client.refreshNow('quote', 'no key')).rejects.toMatchObject({ code: 'PGF_KEY_UNKNOWN' });
  });

  it('with listeners is kept after a refresh', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const client = await clientOf('ada', { url: live.url });
    const { told } = look(client, 'AAPL');
    await expect.poll(() => told.length).toBeGreaterThan(0);
    await client.refreshNow('quote', 'AAPL');
    vi.advanceTimersByTime(1_000);
    expect(client.peek('quote', 'AAPL').state).not.toBe('loading');
  });

  it('reports its number of viewers', async () => {
    const [ada, bob] = [await clientOf('ada', { url: live.url }), await clientOf('bob', { url: live.url })];
    const told: unknown[] = [];
    ada.onViewers('quote', 'AAPL', (viewers) => told.push(viewers));
    look(bob, 'AAPL');
    await expect.poll(() => live.scene.demand()).toEqual(['quote AAPL 2']);
    await live.scene.db.query('select pgfresh_engine.plan_due_pairs()');
    await expect.poll(() => told.at(-1)).toBe(2);
    expect(ada.viewers('quote', 'AAPL')).toBe(2);
    expect(bob.viewers('quote', 'AAPL')).toBe(undefined);
  });

  it('whose listener throws still notifies the other listeners, and can be left', async () => {
    const thrown: unknown[] = [];
    const real = process.listeners('uncaughtException');
    process.removeAllListeners('uncaughtException');
    process.on('uncaughtException', (error) => thrown.push(error.message));
    onTestFinished(() => {
      process.removeAllListeners('uncaughtException');
      real.forEach((listener) => process.on('uncaughtException', listener));
    });
    await live.scene.quote('AAPL', 1);
    const client = await clientOf('ada', { url: live.url });
    const throwing = (): never => {
      throw new Error('of the page');
    };
    const stops = [client.subscribe('quote', 'AAPL', throwing)];
    const { prices, stop } = look(client, 'AAPL');
    await expect.poll(prices).toEqual([1]);
    await expect.poll(() => thrown).toEqual(['of the page']);
    // Also if a state is already known.
    stops.push(client.subscribe('quote', 'AAPL', throwing), stop);
    await expect.poll(() => thrown).toHaveLength(2);
    stops.forEach((each) => each());
    await expect.poll(() => client.status).toBe('idle');
  });
});

describe('createClient', () => {
  it.each(['', 'live.example.com', 'ftp://example.com', '/live'])('rejects the URL %j', (address) => {
    expect(() => createClient({ url: address })).toThrow(expect.objectContaining({ code: 'PGF_CLIENT_URL' }));
  });

  it('needs no URL as long as no pair is viewed, as during server rendering', async () => {
    const client = createClient();
    expect(client.peek('quote', 'AAPL').state).toBe('loading');
    expect(() => client.subscribe('quote', 'AAPL')).toThrow(expect.objectContaining({ code: 'PGF_CLIENT_URL' }));
    await expect(client.refreshNow('quote', 'AAPL')).rejects.toMatchObject({ code: 'PGF_CLIENT_URL' });
  });
});
