import { expect, it } from 'vitest';
import { FairQueue } from '../../src/changes/index.ts';

interface Item {
  readonly type: number;
  readonly name: string;
}

const item = (name: string, type = 1): Item => ({ type, name });

/** Runs items one after another, and returns their names in that order. */
function order(queue: FairQueue<Item>, count = Infinity): string {
  const names: string[] = [];
  for (let next = queue.next(); next; next = names.length < count ? queue.next() : undefined) {
    names.push(next.name);
    queue.end(next, 'done');
  }
  return names.join(' ');
}

it('first reads and small changes do not wait for large ones, which are not starved either', () => {
  const queue = new FairQueue<Item>(4);
  for (let n = 0; n < 100; n++) queue.add(item(`m${n}`), 'many');
  for (const name of ['a', 'b']) queue.add(item(name), 'first');
  for (const name of ['x', 'y']) queue.add(item(name), 'few');
  expect(order(queue, 7)).toBe('a x m0 b y m1 m2');
});

it('types take turns in a queue, so that many items of one type do not hold up another', () => {
  const queue = new FairQueue<Item>(4);
  for (let n = 0; n < 100; n++) queue.add(item(`m${n}`), 'many');
  for (const name of ['a', 'b']) queue.add(item(name, 2), 'many');
  expect(order(queue, 5)).toBe('m0 a m1 b m2');
});

it('a waiting item moves to a better queue, and never to a worse one', () => {
  const queue = new FairQueue<Item>(4);
  const [ada, ben] = [item('ada'), item('ben')];
  queue.add(ada, 'many');
  queue.add(ben, 'many');
  queue.add(ben, 'first');
  queue.add(ben, 'many');
  expect([order(queue), queue.hasNext]).toEqual(['ben ada', false]);
  queue.add(ada, 'few');
  queue.delete(ada);
  expect(queue.next()).toBeUndefined();
});

it('limits the number of concurrent runs, and to one for a type that was slow', () => {
  const queue = new FairQueue<Item>(3);
  for (const name of ['a', 'b', 'c', 'd']) queue.add(item(name), 'few');
  const running = [queue.next()!, queue.next()!, queue.next()!];
  expect([running.map(({ name }) => name), queue.hasNext]).toEqual([['a', 'b', 'c'], false]);
  queue.end(running[0]!, 'slow');
  expect(queue.next()).toBeUndefined();
  queue.add(item('other', 2), 'few');
  expect(queue.next()!.name).toBe('other');
  queue.end(running[1]!, 'slow');
  queue.end(running[2]!, 'slow');
  const slow = queue.next()!;
  queue.add(item('e'), 'few');
  expect([slow.name, queue.hasNext]).toEqual(['d', false]);
  queue.end(slow, 'done');
  expect(queue.next()!.name).toBe('e');
});
