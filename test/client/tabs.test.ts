import { describe, expect, it } from 'vitest';
import { clientOf, isInOrder, look, openScript, pretendPage, useGateway } from './client-scene.ts';

const live = useGateway();

const openConnections = () =>
  live.running.seen.filter(({ type }) => type === 'gateway.opened').length -
  live.running.seen.filter(({ type }) => type === 'gateway.closed').length;

/** Clients that act as tabs of one browser; test/client/browser.test.ts uses real tabs. */
const tabOf = (share = 'ada') => clientOf('ada', { url: live.url, share });

describe('tabs that share a connection', () => {
  it('see the same over one connection, and are one viewer', async () => {
    await live.scene.quote('AAPL', 1);
    await live.scene.quote('MSFT', 1);
    const [one, two, three] = [await tabOf(), await tabOf(), await tabOf()];
    const statuses: string[] = [];
    two.onStatus((status) => statuses.push(status));
    const looks = [look(one, 'AAPL'), look(two, 'AAPL'), look(two, 'MSFT'), look(three, 'msft')];
    for (const { prices } of looks) await expect.poll(prices).toEqual([1]);
    expect([one.status, two.status, three.status]).toEqual(['live', 'live', 'live']);
    expect(statuses).toEqual(['connecting', 'live']);
    await live.scene.quote('MSFT', 2);
    await expect.poll(looks[2]!.prices).toEqual([1, 2]);
    await expect.poll(looks[3]!.prices).toEqual([1, 2]);
    await expect.poll(openConnections).toBe(1);
    await expect.poll(() => live.scene.demand()).toEqual(['quote AAPL 1', 'quote MSFT 1']);
    looks.slice(2).forEach(({ stop }) => stop());
    await expect.poll(() => live.scene.demand()).toEqual(['quote AAPL 1']);
  });

  it('continue with another leader when the first closes', async () => {
    await live.scene.quote('AAPL', 1);
    const [one, two] = [await tabOf(), await tabOf()];
    look(one, 'AAPL');
    await expect.poll(() => one.status).toBe('live');
    const { told, prices } = look(two, 'AAPL');
    await expect.poll(prices).toEqual([1]);
    one.close();
    await live.scene.quote('AAPL', 2);
    await expect.poll(prices).toEqual([1, 2]);
    expect(two.status).toBe('live');
    expect(isInOrder(told)).toBe(true);
    await expect.poll(openConnections).toBe(1);
    two.close();
    await expect.poll(() => live.scene.demand()).toEqual([]);
  });

  it('leave one by one when they are hidden', async () => {
    const page = pretendPage();
    const one = await clientOf('ada', { url: live.url, share: 'ada', hiddenFor: 50 });
    look(one, 'AAPL');
    await expect.poll(() => one.status).toBe('live');
    page.hidden = true;
    await expect.poll(() => one.status).toBe('resting');
    page.hidden = false;
    const two = await tabOf();
    look(two, 'MSFT');
    await expect.poll(() => live.scene.demand()).toEqual(['quote AAPL 1', 'quote MSFT 1']);
    await expect.poll(openConnections).toBe(1);
  });

  it('hand it on from one to the next, and view nothing for closed tabs', async () => {
    const page = pretendPage();
    const first = await clientOf('ada', { url: live.url, share: 'ada', hiddenFor: 50 });
    const [second, third] = [await tabOf(), await tabOf()];
    look(first, 'AAPL');
    await expect.poll(() => first.status).toBe('live');
    look(second, 'MSFT');
    look(third, 'NVDA');
    await expect.poll(() => live.scene.demand()).toEqual(['quote AAPL 1', 'quote MSFT 1', 'quote NVDA 1']);
    page.hidden = true;
    await expect.poll(() => live.scene.demand()).toEqual(['quote MSFT 1', 'quote NVDA 1']);
    page.hidden = false;
    await expect.poll(() => live.scene.demand()).toEqual(['quote AAPL 1', 'quote MSFT 1', 'quote NVDA 1']);
    second.close();
    await expect.poll(() => live.scene.demand()).toEqual(['quote AAPL 1', 'quote NVDA 1']);
    third.close();
    await expect.poll(() => live.scene.demand()).toEqual(['quote AAPL 1']);
    expect(first.status).toBe('live');
    await expect.poll(openConnections).toBe(1);
  });

  it('request refreshes, and get viewer counts', async () => {
    await live.scene.quote('AAPL', 1);
    const [one, two] = [await tabOf(), await tabOf()];
    await one.get('quote', 'AAPL');
    look(one, 'AAPL');
    expect(await two.refreshNow('quote', 'AAPL')).toBe('queued');
    expect(await two.refreshNow('quote', 'AAPL')).toBe('recent');
    await expect(two.refreshNow('quote', 'no key')).rejects.toMatchObject({ code: 'PGF_KEY_UNKNOWN' });
    const told: unknown[] = [];
    two.onViewers('quote', 'AAPL', (viewers) => told.push(viewers));
    await expect.poll(() => live.scene.demand()).toContain('quote AAPL 1');
    await live.scene.db.query('select pgfresh_engine.plan_due_pairs()');
    await expect.poll(() => told.at(-1)).toBe(1);
  });

  it('track the clock of the server', async () => {
    const { url, sockets } = await openScript();
    const [one, two] = [await clientOf('ada', { url, share: 'ada' }), await clientOf('ada', { url, share: 'ada' })];
    look(one, 'AAPL');
    await expect.poll(() => one.status).toBe('live');
    const now = new Date(Date.now() + 3_600_000).toISOString();
    sockets[0]!.send(JSON.stringify({ type: 'pong', now }));
    await expect.poll(() => one.now() - Date.now()).toBeGreaterThan(3_000_000);
    look(two, 'AAPL');
    await expect.poll(() => two.now() - Date.now()).toBeGreaterThan(3_000_000);
  });

  it('of other users have their own connection', async () => {
    const [ada, bob] = [await tabOf('ada'), await clientOf('bob', { url: live.url, share: 'bob' })];
    look(ada, 'AAPL');
    look(bob, 'AAPL');
    await expect.poll(() => live.scene.demand()).toEqual(['quote AAPL 2']);
    await expect.poll(openConnections).toBe(2);
  });
});
