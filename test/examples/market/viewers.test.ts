import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { afterEach, describe, expect, it } from 'vitest';
import { Viewers, zipf, type ViewersOptions } from '../../../examples/market/viewers.ts';
import { freezeClock } from '../../harness/clock.ts';
import { seededRandom } from '../../harness/random.ts';
import { registerMarket } from './registered-market.ts';
import { openMarket } from './scene.ts';

const { url, db } = await openMarket();
await registerMarket(db);
const clock = await freezeClock(db, '2026-11-16T02:00:00Z');

const running = new Set<Viewers>();
afterEach(async () => {
  for (const viewers of running) await viewers.stop();
  running.clear();
});

function start(options: Partial<ViewersOptions> = {}): Viewers {
  const viewers = new Viewers({ url, seed: 1, count: 20, medianDwellMs: 100, ...options });
  running.add(viewers);
  viewers.start();
  return viewers;
}

const subscriptions = () =>
  db.query<{ user_id: string; key: string; data_type: string; last_seen_at: Date }>(
    'select user_id, key, data_type, last_seen_at from pgfresh.active_subscriptions',
  );

describe('viewers', () => {
  it('come, look at a few symbols that are traded now, and go', async () => {
    const viewers = start();
    const seen = new Map<string, number>();
    while (seen.size < 15) for (const { key } of await subscriptions()) seen.set(key, (seen.get(key) ?? 0) + 1);
    // It is eleven in the morning in Tokyo; New York and London sleep.
    const traded = [...seen.keys()].filter((symbol) => /\.[TX]$/.test(symbol));
    expect(traded.length / seen.size).toBeGreaterThan(0.5);
    expect((await db.query('select 1 from pgfresh.api_call_queue limit 1')).length).toBe(1);
    await viewers.stop();
    expect(viewers.pages.length).toBeGreaterThan(0);
    const left = await subscriptions();
    for (const { user, symbol } of viewers.pages)
      expect(left.filter((one) => one.user_id === user && one.key === symbol)).toEqual([]);
  });

  it('show a profile and a quote on every page, and the rest on some', async () => {
    const viewers = start();
    while (viewers.pages.length < 20 || new Set(viewers.pages.flatMap(({ dataTypes }) => dataTypes)).size < 5)
      await subscriptions();
    for (const { dataTypes } of viewers.pages) expect(dataTypes.slice(0, 2)).toEqual(['profile', 'quote']);
  });

  it('say again and again that they are there', async () => {
    const viewers = start({ medianDwellMs: 1_000_000, heartbeatMs: 10, count: 5_000 });
    const hasCome = async () => {
      const page = viewers.pages[0];
      return (await subscriptions()).some((one) => one.user_id === page?.user && one.key === page.symbol);
    };
    while (!(await hasCome()));
    await clock.advance('2 minutes');
    const page = viewers.pages[0]!;
    const [now] = await db.query<{ now: Date }>('select pgfresh.clock() as now');
    const isSeen = async () =>
      (await subscriptions()).some(
        (one) =>
          one.user_id === page.user && one.key === page.symbol && one.last_seen_at.getTime() === now!.now.getTime(),
      );
    while (!(await isSeen()));
  });

  it('do the same for the same seed', async () => {
    const firstPages = async (seed: number) => {
      const viewers = start({ seed });
      const first = new Map<string, string>();
      while (first.size < 20) {
        for (const { user, symbol } of viewers.pages) if (!first.has(user)) first.set(user, symbol);
        await subscriptions();
      }
      await viewers.stop();
      return first;
    };
    const one = await firstPages(3);
    expect(await firstPages(3)).toEqual(one);
    expect(await firstPages(4)).not.toEqual(one);
  });

  it('survive that the database hangs up', async () => {
    const errors: Error[] = [];
    start({ onError: (error) => errors.push(error) });
    const users = async () => new Set((await subscriptions()).map(({ user_id, key }) => `${user_id} ${key}`));
    while ((await users()).size === 0);
    const cut = `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'market viewers' and datname = current_database()`;
    while (errors.length === 0) await db.query(cut);
    const before = await users();
    while ([...(await users())].every((user) => before.has(user)));
  });

  it('start and stop once, in any order', async () => {
    const never = new Viewers({ url, seed: 1, count: 5 });
    await never.stop();
    await never.stop();
    expect(() => never.start()).toThrow('do not start again');
    const viewers = start({ count: 3 });
    viewers.start();
    while (viewers.pages.length < 3) await subscriptions();
    expect(viewers.pages).toHaveLength(3);
  });
});

describe('viewers as a process', () => {
  const spawnViewers = (env: Record<string, string>, ...options: string[]) =>
    spawn(process.execPath, ['examples/market/viewers.ts', ...options], {
      env: { PATH: process.env['PATH'], ...env },
      stdio: 'ignore',
    });

  it('look, and leave when they are told to', async () => {
    await db.query('delete from pgfresh.active_subscriptions');
    const child = spawnViewers({ DATABASE_URL: url }, '--count', '2000');
    while ((await subscriptions()).length === 0);
    child.kill('SIGTERM');
    expect(await once(child, 'close')).toEqual([0, null]);
    expect(await subscriptions()).toEqual([]);
  });

  it('refuse what makes no sense', async () => {
    expect(await once(spawnViewers({}), 'close')).toEqual([2, null]);
    expect(await once(spawnViewers({ DATABASE_URL: url }, '--count', 'many'), 'close')).toEqual([2, null]);
  });
});

it('draws the first of many about twice as often as the second', () => {
  const random = seededRandom(1);
  const counts = Array.from({ length: 500 }, () => 0);
  for (let draw = 0; draw < 100_000; draw++) counts[zipf(500, random)]!++;
  expect(counts[0]! / counts[1]!).toBeGreaterThan(1.5);
  expect(counts[0]! / counts[9]!).toBeGreaterThan(5);
  expect(Math.min(...counts)).toBeGreaterThan(0);
});
