import { useEffect, useState } from 'react';

export type Point = readonly [at: number, price: number];

const kept = 240;

interface Quoted {
  readonly price: number;
  readonly source_updated_at: string;
}

/** The price history of a symbol: the recorded last 15 minutes, then each new quote. */
export function usePrices(symbol: string, quote: Quoted | undefined): readonly Point[] {
  const [points, setPoints] = useState<readonly Point[]>([]);
  useEffect(() => {
    const stop = new AbortController();
    fetch(`/dev/prices/${encodeURIComponent(symbol)}`, { signal: stop.signal })
      .then(async (response) => (response.ok ? ((await response.json()) as Point[]) : []))
      .then((past) => setPoints((later) => merge(past, later)))
      .catch(() => {});
    return () => stop.abort();
  }, [symbol]);
  const at = quote && Date.parse(quote.source_updated_at);
  const price = quote?.price;
  useEffect(() => {
    if (at !== undefined && price !== undefined) setPoints((before) => merge(before, [[at, price]]));
  }, [at, price]);
  return points;
}

/** The direction over all of these points. */
export function directionOf(points: readonly Point[]): 'up' | 'down' {
  return (points.at(-1)?.[1] ?? 0) < (points[0]?.[1] ?? 0) ? 'down' : 'up';
}

function merge(one: readonly Point[], other: readonly Point[]): readonly Point[] {
  return [...new Map([...one, ...other])].toSorted(([a], [b]) => a - b).slice(-kept);
}
