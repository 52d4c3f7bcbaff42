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

it('drops a subscriber that throws, tells the others, and goes on', () => {
  const events = new Events();
  const seen: PgfreshEvent[] = [];
  let calls = 0;
  events.subscribe(() => {
    calls++;
    throw new Error('broken');
  });
  events.subscribe((event) => seen.push(event));
  events.emit({ type: 'process.stopped' });
  events.emit({ type: 'process.stopped' });
  expect(calls).toBe(1);
  expect(seen.map((event) => event.type)).toEqual(['warning', 'process.stopped', 'process.stopped']);
});
