import { expect, it } from 'vitest';
import { Events, type PgfreshEvent } from '../../src/events/index.ts';

it('reaches every subscriber until it leaves', () => {
  const events = new Events();
  const seen: string[] = [];
  const leave = events.subscribe((event) => seen.push(`a ${event.type}`));
  events.on('process.stopping', ({ reason }) => seen.push(`b ${reason}`));
  events.emit({ type: 'process.stopping', reason: 'SIGINT' });
  leave();
  leave();
  events.emit({ type: 'process.stopped' });
  events.emit({ type: 'process.stopping', reason: 'SIGTERM' });
  expect(seen).toEqual(['a process.stopping', 'b SIGINT', 'b SIGTERM']);
});

it('runs 8: keeps a subscriber that throws, and tells everyone once', () => {
  const events = new Events();
  const seen: PgfreshEvent[] = [];
  let calls = 0;
  events.subscribe((event) => {
    calls++;
    if (event.type !== 'process.stopped') throw Object.create(null) as Error;
  });
  events.subscribe((event) => seen.push(event));
  events.emit({ type: 'demand.failed', problem: 'one' });
  events.emit({ type: 'demand.failed', problem: 'two' });
  events.emit({ type: 'process.stopped' });
  expect(calls).toBe(4);
  const told = 'An event subscriber failed at demand.failed: no message';
  expect(seen).toMatchObject([
    { code: 'subscriber_failed', message: told },
    { problem: 'one' },
    { problem: 'two' },
    { type: 'process.stopped' },
  ]);
});
