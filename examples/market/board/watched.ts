import { useCallback, useState } from 'react';

const place = 'pgfresh.market.watchlist';
// The first ones are traded day and night; the others show what a closed exchange looks like.
const usual = ['DIS.X', 'COST.X', 'JPM.X', 'UBER.X', 'NFLX.X', 'GM.X', 'PSN.L', 'AAPL', '7203.T'];

export interface WatchedSymbols {
  readonly symbols: readonly string[];
  readonly toggle: (symbol: string) => void;
}

/** The symbols of the watchlist, kept in this browser. */
export function useWatchlist(): WatchedSymbols {
  const [symbols, setSymbols] = useState(kept);
  const toggle = useCallback((symbol: string) => {
    setSymbols((before) => {
      const after = before.includes(symbol) ? before.filter((each) => each !== symbol) : [symbol, ...before];
      try {
        localStorage.setItem(place, JSON.stringify(after));
      } catch {
        // A browser that keeps nothing shows the usual ones next time.
      }
      return after;
    });
  }, []);
  return { symbols, toggle };
}

const isTicker = (text: string): boolean => /^\S{1,20}$/.test(text);

function kept(): readonly string[] {
  try {
    const value: unknown = JSON.parse(localStorage.getItem(place) ?? 'null');
    if (Array.isArray(value)) return value.filter((each): each is string => typeof each === 'string' && isTicker(each));
  } catch {
    // What is not ours is not read.
  }
  return usual;
}
