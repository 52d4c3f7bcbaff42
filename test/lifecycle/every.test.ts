import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Backoff, every, Wake } from '../../src/lifecycle/index.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }));
afterEach(() => void vi.useRealTimers());

/** A loop whose work tells when it was done, in milliseconds since the start. */
function loop(
  work: (count: number) => Promise<void> | Promise<number> = async () => {},
  options: Partial<Parameters<typeof every>[2]> = {},
) {
  const stop = new AbortController();
  const times: number[] = [];
  const failures: unknown[] = [];
  let now = 0;
  const tick = (): Promise<void> | Promise<number> => {
    times.push(now);
    return work(times.length);
  };
  const ended = every(100, tick, { signal: stop.signal, failed: (error) => failures.push(error), ...options });
  const pass = async (ms: number): Promise<void> => {
    for (let step = 0; step < ms; step++) {
      await vi.advanceTimersByTimeAsync(1);
      now += 1;
    }
  };
  return { stop, times, failures, ended, pass };
}

it('waits first, and then does the work once per period', async () => {
  const { stop, times, ended, pass } = loop();
  await pass(350);
  stop.abort();
  await ended;
  expect(times).toEqual([99, 199, 299]);
});

it('begins with the work where that is asked for', async () => {
  const { stop, times, ended, pass } = loop(undefined, { now: true });
  await pass(150);
  stop.abort();
  await ended;
  expect(times).toEqual([0, 99]);
});

it('waits as long as the work says, and not at all for 0', async () => {
  const { stop, times, ended, pass } = loop(async (count) => (count < 3 ? 0 : 500), { now: true });
  await pass(400);
  stop.abort();
  await ended;
  expect(times).toEqual([0, 0, 0]);
});

it('is woken from a wait, also by a word that came during the work', async () => {
  const wake = new Wake();
  const { stop, times, ended, pass } = loop(async (count) => void (count === 1 && wake.wake()), { now: true, wake });
  await pass(10);
  expect(times).toEqual([0, 0]);
  wake.wake();
  await pass(1);
  stop.abort();
  await ended;
  expect(times).toEqual([0, 0, 10]);
});

it('tells of failures and goes on, each time after twice the pause, until one goes well', async () => {
  const fails = async (count: number): Promise<void> => {
    if (count !== 4) throw new Error(`failure ${count}`);
  };
  const { stop, times, failures, ended, pass } = loop(fails, { now: true, backoff: new Backoff(10, 25) });
  await pass(200);
  stop.abort();
  await ended;
  // 10, 20 and 25 after failures, a period after the success, and 10 again.
  expect(times).toEqual([0, 9, 29, 54, 154, 164, 184]);
  expect(failures).toHaveLength(6);
});

it('is not woken from the pause after a failure, so that a busy caller does not repeat it at once', async () => {
  const wake = new Wake();
  const fails = async (): Promise<void> => {
    throw new Error('no');
  };
  const { stop, times, ended, pass } = loop(fails, { now: true, wake });
  await pass(1);
  wake.wake();
  await pass(50);
  expect(times).toEqual([0]);
  stop.abort();
  await ended;
});

it('finishes the work under way when it is stopped, and tells of no failure that the stop caused', async () => {
  const work = Promise.withResolvers<void>();
  const { stop, failures, ended } = loop(() => work.promise, { now: true });
  const hasEnded = vi.fn();
  void ended.then(hasEnded);
  stop.abort();
  await vi.advanceTimersByTimeAsync(1_000);
  expect(hasEnded).not.toHaveBeenCalled();
  work.reject(new Error('stopped'));
  await ended;
  expect(failures).toEqual([]);
});

it('ends a wait at once when it is stopped, and leaves no timer', async () => {
  const { stop, times, ended } = loop();
  stop.abort();
  await ended;
  expect(times).toEqual([]);
  expect(vi.getTimerCount()).toBe(0);
});

it('spreads periods by the share that is asked for', async () => {
  const random = vi.spyOn(Math, 'random').mockReturnValueOnce(0).mockReturnValueOnce(1);
  const { stop, times, ended, pass } = loop(undefined, { jitter: 0.1 });
  await pass(250);
  random.mockRestore();
  stop.abort();
  await ended;
  expect(times.slice(0, 2)).toEqual([89, 199]);
});
