import { afterEach, expect, it, vi } from 'vitest';
import { isTimeForEvents, pauseAfter } from '../../client/retry.ts';

afterEach(() => void vi.restoreAllMocks());

it('the pause is random below a maximum that grows with each failure up to 30 s', () => {
  const random = vi.spyOn(Math, 'random').mockReturnValue(1);
  expect([0, 1, 2, 5, 6, 100].map(pauseAfter)).toEqual([500, 1_000, 2_000, 16_000, 30_000, 30_000]);
  random.mockReturnValue(0.25);
  expect(pauseAfter(1)).toBe(250);
  random.mockReturnValue(0);
  expect(pauseAfter(100)).toBe(0);
});

it('an event stream is tried after two failures, or six if a WebSocket has worked, in turn with WebSockets', () => {
  const turns = (hadWebSocket: boolean) =>
    Array.from({ length: 10 }, (_, failures) => failures).filter((failures) => isTimeForEvents(failures, hadWebSocket));
  expect(turns(false)).toEqual([2, 4, 6, 8]);
  expect(turns(true)).toEqual([6, 8]);
});
