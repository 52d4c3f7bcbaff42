import type { Pair, Pairs } from './pairs.ts';
import type { PairName } from './protocol.ts';

/** The tabs that follow this one, for which it views pairs too. */
export interface Followers {
  has(tab: string): boolean;
  /** Views these pairs for a tab, and no others. */
  serve(tab: string, named: readonly PairName[]): void;
  /** Removes a tab that was closed. */
  forget(tab: string): void;
  forgetAll(): void;
}

export function createFollowers(pairs: Pairs, onChange: (pair: Pair) => void): Followers {
  /** The pairs of each tab. */
  const wanted = new Map<string, Pair[]>();
  /** For each pair: how many tabs view it, and its listener. */
  const watched = new Map<Pair, { tabs: number; readonly tell: () => void }>();

  const begin = (pair: Pair): void => {
    const known = watched.get(pair) ?? { tabs: 0, tell: () => onChange(pair) };
    known.tabs += 1;
    watched.set(pair, known);
    pair.listeners.add(known.tell);
    known.tell();
  };
  const end = (pair: Pair): void => {
    const known = watched.get(pair)!;
    known.tabs -= 1;
    if (known.tabs === 0) {
      pair.listeners.delete(known.tell);
      watched.delete(pair);
    }
    pairs.release(pair);
  };
  const serve: Followers['serve'] = (tab, named) => {
    const before = wanted.get(tab);
    const held = named.map((pair) => pairs.hold(pair));
    wanted.set(tab, held);
    held.forEach(begin);
    before?.forEach(end);
  };
  const forget: Followers['forget'] = (tab) => {
    serve(tab, []);
    wanted.delete(tab);
  };
  return { has: (tab) => wanted.has(tab), serve, forget, forgetAll: () => [...wanted.keys()].forEach(forget) };
}
