import { expect, it } from 'vitest';
import { Turns } from '../../src/changes/index.ts';

interface Reader {
  readonly type: number;
  readonly name: string;
}

const reader = (name: string, type = 1): Reader => ({ type, name });

/** The names of those whose turn it is, one after another, each of whom ends at once. */
function order(turns: Turns<Reader>, count = Infinity): string {
  const names: string[] = [];
  for (let who = turns.next(); who; who = names.length < count ? turns.next() : undefined) {
    names.push(who.name);
    turns.end(who, 'done');
  }
  return names.join(' ');
}

it('one who comes alone does not wait for the many, nor do they wait for ever', () => {
  const turns = new Turns<Reader>(4);
  for (let n = 0; n < 100; n++) turns.add(reader(`m${n}`), 'many');
  for (const name of ['a', 'b']) turns.add(reader(name), 'first');
  for (const name of ['x', 'y']) turns.add(reader(name), 'few');
  expect(order(turns, 7)).toBe('a x m0 b y m1 m2');
});

it('types take turns in a lane, so many readers of one do not keep back those of another', () => {
  const turns = new Turns<Reader>(4);
  for (let n = 0; n < 100; n++) turns.add(reader(`m${n}`), 'many');
  for (const name of ['a', 'b']) turns.add(reader(name, 2), 'many');
  expect(order(turns, 5)).toBe('m0 a m1 b m2');
});

it('who waits already moves to a better lane, and never to a worse one', () => {
  const turns = new Turns<Reader>(4);
  const [ada, ben] = [reader('ada'), reader('ben')];
  turns.add(ada, 'many');
  turns.add(ben, 'many');
  turns.add(ben, 'first');
  turns.add(ben, 'many');
  expect([order(turns), turns.hasTurn]).toEqual(['ben ada', false]);
  turns.add(ada, 'few');
  turns.delete(ada);
  expect(turns.next()).toBeUndefined();
});

it('not more than so many have a turn, and of a type that takes too long one', () => {
  const turns = new Turns<Reader>(3);
  for (const name of ['a', 'b', 'c', 'd']) turns.add(reader(name), 'few');
  const running = [turns.next()!, turns.next()!, turns.next()!];
  expect([running.map(({ name }) => name), turns.hasTurn]).toEqual([['a', 'b', 'c'], false]);
  turns.end(running[0]!, 'slow');
  expect(turns.next()).toBeUndefined();
  turns.add(reader('other', 2), 'few');
  expect(turns.next()!.name).toBe('other');
  turns.end(running[1]!, 'slow');
  turns.end(running[2]!, 'slow');
  const slow = turns.next()!;
  turns.add(reader('e'), 'few');
  expect([slow.name, turns.hasTurn]).toEqual(['d', false]);
  turns.end(slow, 'done');
  expect(turns.next()!.name).toBe('e');
});
