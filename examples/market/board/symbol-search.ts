import type { Listing } from './server.ts';

export interface Found {
  readonly symbol: string;
  readonly name: string | null;
  readonly exchange: string;
  readonly open: boolean;
}

/** The ticker itself comes first, then tickers that begin so, companies, tickers that contain it, and exchanges. */
export function searchSymbols({ symbols, exchanges }: Listing, text: string): readonly Found[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === '') return [];
  const exchangeOf = new Map(exchanges.map((each) => [each.exchange, each]));
  const rank = (symbol: string, name: string | null, exchange: string): number => {
    const ticker = symbol.toLowerCase();
    if (ticker === wanted) return 0;
    if (ticker.startsWith(wanted)) return 1;
    if (
      name
        ?.toLowerCase()
        .split(' ')
        .some((word) => word.startsWith(wanted))
    )
      return 2;
    if (ticker.includes(wanted)) return 3;
    return `${name ?? ''} ${exchange}`.toLowerCase().includes(wanted) ? 4 : Infinity;
  };
  return symbols
    .map(({ symbol, name, exchange }) => {
      const { name: place = exchange, open = false } = exchangeOf.get(exchange) ?? {};
      return { symbol, name, exchange: place, open, rank: rank(symbol, name, place) };
    })
    .filter((each) => each.rank < Infinity)
    .toSorted((a, b) => a.rank - b.rank);
}
