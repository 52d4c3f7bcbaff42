import { afterEach, beforeAll, beforeEach, expect, it, vi } from 'vitest';
import { createHeartbeat, type HeartbeatArguments } from 'pgfresh/client/heartbeat';
import { LiveScene } from '../gateway/live-scene.ts';
import { pretendPage } from './client-scene.ts';

let scene: LiveScene;
beforeAll(async () => {
  scene = await LiveScene.open();
});

const made: ReturnType<typeof createHeartbeat>[] = [];
beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'] }));
afterEach(async () => {
  vi.useRealTimers();
  await Promise.all(made.splice(0).map((heartbeat) => heartbeat.close()));
});

/** A heartbeat over real SQL, with a record of its calls. */
function beating(userId: string) {
  const called: string[] = [];
  const errors: unknown[] = [];
  let isDown = false;
  let underway = 0;
  const heartbeat = createHeartbeat({
    userId,
    call: async (name: string, { p_user_id, p_key, p_data_type }: HeartbeatArguments) => {
      called.push(`${name.split('_', 1)[0]} ${p_key}`);
      if (isDown) throw new Error('no network');
      underway += 1;
      await scene.db
        .query(`select pgfresh.${name}($1::text, $2::text, $3::text)`, [p_user_id, p_key, p_data_type])
        .finally(() => (underway -= 1));
    },
    onError: (error) => errors.push(error),
  });
  made.push(heartbeat);
  /** Lets time pass. Queries use the same clock, and must not seem to take that long. */
  const pass = async (ms: number): Promise<void> => {
    for (let left = ms; left > 0; left -= 60_000) {
      await expect.poll(() => underway).toBe(0);
      await vi.advanceTimersByTimeAsync(Math.min(left, 60_000));
    }
    await expect.poll(() => underway).toBe(0);
  };
  return { heartbeat, called, errors, pass, setDown: (down: boolean) => void (isDown = down) };
}

const subscribed = () =>
  scene.value<string[]>(`array(select user_id || ' ' || key from pgfresh.active_subscriptions order by 1)`);

it('adds at once, beats every minute and removes, once for all views of a pair', async () => {
  const { heartbeat, called, pass } = beating('ada');
  const stops = [1, 2, 3].map(() => heartbeat.subscribe('quote', 'AAPL'));
  await expect.poll(subscribed).toEqual(['ada AAPL']);
  expect(called).toEqual(['upsert AAPL']);
  await pass(120_000);
  expect(called).toEqual(['upsert AAPL', 'upsert AAPL', 'upsert AAPL']);
  stops.forEach((stop) => stop());
  stops.forEach((stop) => stop());
  expect(called).toHaveLength(3);
  await pass(1_000);
  expect(await subscribed()).toEqual([]);
  expect(called.at(-1)).toBe('remove AAPL');
  await pass(600_000);
  expect(called).toHaveLength(4);
});

it('makes no calls when a component is remounted', async () => {
  const { heartbeat, called, pass } = beating('ada');
  for (let turn = 0; turn < 20; turn++) heartbeat.subscribe('quote', 'AAPL')();
  const stop = heartbeat.subscribe('quote', 'AAPL');
  await pass(5_000);
  expect(called).toEqual(['upsert AAPL']);
  stop();
});

it('reports errors, and tries again with the next heartbeat', async () => {
  const { heartbeat, errors, pass, setDown } = beating('ada');
  setDown(true);
  heartbeat.subscribe('quote', 'AAPL');
  await expect.poll(() => errors).toEqual([new Error('no network')]);
  setDown(false);
  await pass(60_000);
  await expect.poll(subscribed).toEqual(['ada AAPL']);
  heartbeat.subscribe('quote', 'no key');
  await expect.poll(() => errors[1]).toMatchObject({ code: 'PGF_KEY_UNKNOWN' });
});

it('makes one call after another, so that no heartbeat arrives after a removal', async () => {
  const called: string[] = [];
  const answers: (() => void)[] = [];
  const call = (name: string): Promise<void> => {
    called.push(name.split('_', 1)[0]!);
    return new Promise((resolve) => answers.push(resolve));
  };
  const heartbeat = createHeartbeat({ call });
  const stop = heartbeat.subscribe('quote', 'AAPL');
  stop();
  await vi.advanceTimersByTimeAsync(1_000);
  expect(called).toEqual(['upsert']);
  answers[0]!();
  await expect.poll(() => called).toEqual(['upsert', 'remove']);
});

it('treats a result with an error as a failure, as returned by Supabase', async () => {
  const errors: unknown[] = [];
  const call = () => Promise.resolve({ data: null, error: { message: 'denied' } });
  const heartbeat = createHeartbeat({ call, onError: (error) => errors.push(error) });
  heartbeat.subscribe('quote', 'AAPL');
  await expect.poll(() => errors).toEqual([{ message: 'denied' }]);
  await heartbeat.close();
});

it('pauses while the page is hidden, and resumes when it is shown', async () => {
  const page = pretendPage();
  const { heartbeat, called, pass } = beating('ada');
  heartbeat.subscribe('quote', 'AAPL');
  page.hidden = true;
  await pass(300_000);
  expect(called).toEqual(['upsert AAPL']);
  page.hidden = false;
  await expect.poll(() => called).toEqual(['upsert AAPL', 'upsert AAPL']);
});

it('ends all subscriptions when it is closed; later unsubscribes do nothing', async () => {
  const { heartbeat, called, errors, pass } = beating('ada');
  const stop = heartbeat.subscribe('quote', 'AAPL');
  heartbeat.subscribe('quote', 'MSFT');
  await heartbeat.close();
  expect(errors).toEqual([]);
  expect(await subscribed()).toEqual([]);
  heartbeat.subscribe('quote', 'AAPL');
  stop();
  await pass(1_000);
  expect(called).toEqual(['upsert AAPL', 'upsert MSFT', 'remove AAPL', 'remove MSFT', 'upsert AAPL']);
});
