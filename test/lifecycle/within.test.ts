import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { pause, within } from '../../src/lifecycle/index.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }));
afterEach(() => {
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});

const never = new Promise<string>(() => {});

it('gives what the work gives in time, or fails as it fails', async () => {
  expect(await within(100, Promise.resolve('done'))).toBe('done');
  expect(await within(100, undefined)).toBeUndefined();
  await expect(within(100, Promise.reject(new Error('no')))).rejects.toThrow('no');
});

it('gives nothing when the work is late, or what it is told to', async () => {
  const [nothing, word] = [within(100, never), within(100, never, () => 'late')];
  const failure = within(100, never, () => {
    throw new Error('too late');
  });
  failure.catch(() => {});
  await vi.advanceTimersByTimeAsync(100);
  expect(await nothing).toBeUndefined();
  expect(await word).toBe('late');
  await expect(failure).rejects.toThrow('too late');
});

it('does not mind what becomes of work that was late', async () => {
  const work = Promise.withResolvers<void>();
  const waited = within(100, work.promise);
  await vi.advanceTimersByTimeAsync(100);
  await waited;
  work.reject(new Error('later'));
  await vi.advanceTimersByTimeAsync(1);
});

it('pauses until the time is over or the signal is aborted', async () => {
  const stop = new AbortController();
  const order: string[] = [];
  const long = pause(1_000, stop.signal).then(() => order.push('stopped'));
  const short = pause(10, stop.signal).then(() => order.push('over'));
  await vi.advanceTimersByTimeAsync(10);
  stop.abort();
  await Promise.all([long, short, pause(1_000, stop.signal)]);
  expect(order).toEqual(['over', 'stopped']);
});
