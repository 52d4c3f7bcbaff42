import { describe, expect, it, vi } from 'vitest';
import { clientOf, look, pretendPage, recordSent, useGateway } from './client-scene.ts';

const live = useGateway();

describe('the connection of a page', () => {
  it('that is pinged when the page is shown has time to answer', async () => {
    const page = pretendPage();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const sent = recordSent();
    const client = await clientOf('ada', { url: live.url });
    await client.get('quote', 'AAPL');
    look(client, 'AAPL');
    const statuses: string[] = [];
    client.onStatus((status) => statuses.push(status));
    // All messages were received, and the link is checked again a moment later.
    await vi.advanceTimersByTimeAsync(19_999);
    page.hidden = true;
    page.hidden = false;
    expect(sent.at(-1)).toEqual({ type: 'ping' });
    vi.advanceTimersByTime(1);
    expect(client.status).toBe('live');
    // The refresh is answered after the ping.
    await client.refreshNow('quote', 'AAPL');
    await vi.advanceTimersByTimeAsync(3_000);
    expect(statuses).toEqual([]);
    expect(live.connections()).toBe(1);
  });

  it('is closed by a page that stays hidden, and opened again with the newest state when it is shown', async () => {
    const page = pretendPage();
    await live.scene.quote('AAPL', 1);
    const client = await clientOf('ada', { url: live.url, hiddenFor: 100 });
    const { prices } = look(client, 'AAPL');
    await expect.poll(prices).toEqual([1]);
    page.hidden = true;
    await expect.poll(() => client.status).toBe('resting');
    await expect.poll(() => live.scene.demand()).toEqual([]);
    await live.scene.quote('AAPL', 2);
    page.hidden = false;
    await expect.poll(prices).toEqual([1, 2]);
    expect(client.status).toBe('live');
  });

  it.each([1_000, Infinity])('is kept by a page that is hidden for less than %s ms', async (hiddenFor) => {
    const page = pretendPage();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const client = await clientOf('ada', { url: live.url, hiddenFor });
    await client.get('quote', 'AAPL');
    look(client, 'AAPL');
    page.hidden = true;
    vi.advanceTimersByTime(999);
    page.hidden = false;
    expect(client.status).toBe('live');
    // The time starts over when the page is hidden again.
    vi.advanceTimersByTime(999);
    page.hidden = true;
    vi.advanceTimersByTime(999);
    expect(client.status).toBe('live');
    vi.advanceTimersByTime(1);
    expect(client.status).toBe(hiddenFor === Infinity ? 'live' : 'resting');
    expect(live.connections()).toBe(1);
  });

  it('is not tried without a network, except to a server on this machine', async () => {
    const page = pretendPage();
    page.offline = true;
    const [near, far] = [
      await clientOf('ada', { url: live.url }),
      await clientOf('ada', { url: live.url.replace('127.0.0.1', '0.0.0.0') }),
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
});
