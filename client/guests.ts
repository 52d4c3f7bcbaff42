import type { Pair, Pairs } from './pairs.ts';
import type { PairName } from './protocol.ts';

/** Other tabs, for which the one that has the connection looks too. */
export interface Guests {
  has(guest: string): boolean;
  /** Looks for a guest at these pairs, and at no others any more. */
  serve(guest: string, named: readonly PairName[]): void;
  /** Forgets one that has gone. */
  forget(guest: string): void;
  forgetAll(): void;
}

export function guestsOf(pairs: Pairs, tellOf: (pair: Pair) => void): Guests {
  /** What each of them wants. */
  const wanted = new Map<string, Pair[]>();
  /** Of each pair that they want: how many do, and how they are told. */
  const told = new Map<Pair, { guests: number; readonly tell: () => void }>();

  const begin = (pair: Pair): void => {
    const known = told.get(pair) ?? { guests: 0, tell: () => tellOf(pair) };
    known.guests += 1;
    told.set(pair, known);
    pair.listeners.add(known.tell);
    known.tell();
  };
  const end = (pair: Pair): void => {
    const known = told.get(pair)!;
    known.guests -= 1;
    if (known.guests === 0) {
      pair.listeners.delete(known.tell);
      told.delete(pair);
    }
    pairs.release(pair);
  };
  const serve: Guests['serve'] = (guest, named) => {
    const before = wanted.get(guest);
    const held = named.map((pair) => pairs.hold(pair));
    wanted.set(guest, held);
    held.forEach(begin);
    before?.forEach(end);
  };
  const forget: Guests['forget'] = (guest) => {
    serve(guest, []);
    wanted.delete(guest);
  };
  return { has: (guest) => wanted.has(guest), serve, forget, forgetAll: () => [...wanted.keys()].forEach(forget) };
}
