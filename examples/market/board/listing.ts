import { createContext, use } from 'react';
import { usePolled } from './poll.ts';
import type { Listing } from './server.ts';

const nothing: Listing = { symbols: [], exchanges: [] };

export const ListingContext = createContext<Listing>(nothing);

/** All symbols and exchanges. Names come with profiles, and exchanges open and close, so it is asked now and then. */
export function useListing(isLive: boolean): Listing {
  return usePolled<Listing>('/dev/symbols', 30_000, isLive).value ?? nothing;
}

export function useExchange(symbol: string): Listing['exchanges'][number] | undefined {
  const { symbols, exchanges } = use(ListingContext);
  const listed = symbols.find((each) => each.symbol === symbol);
  return exchanges.find(({ exchange }) => exchange === listed?.exchange);
}
