import { z } from 'zod';

/** What every contender refreshes: a table of quotes, the schema of an answer, and the address that is asked. */

export const table = `create table quote (
  symbol text primary key,
  price double precision not null,
  change double precision not null,
  volume bigint not null,
  market_cap double precision not null,
  currency text not null,
  quoted_at timestamptz not null,
  fetched_at timestamptz)`;

/** A quote of the market example, with all of its fields. */
export const quoteSchema = z.strictObject({
  symbol: z.string().min(1),
  exchange: z.string().min(1),
  currency: z.string().length(3),
  price: z.number(),
  change: z.number(),
  changePercent: z.number(),
  open: z.number(),
  high: z.number(),
  low: z.number(),
  previousClose: z.number(),
  volume: z.int(),
  averageVolume: z.int(),
  marketCap: z.number(),
  timestamp: z.iso.datetime(),
});

export type Quote = z.output<typeof quoteSchema>;

export const pathOf = (symbol: string) => `/v1/quote/${encodeURIComponent(symbol)}`;

export function rowOf({ symbol, price, change, volume, marketCap, currency, timestamp }: Quote) {
  return { symbol, price, change, volume, market_cap: marketCap, currency, quoted_at: timestamp };
}

/** Rows that are older than any answer, so that each job updates one, as refreshes mostly do. */
export const oldRows = `
  insert into quote select 'K' || n, 1, 0, 1, 1, 'USD', '2026-01-01', '2026-01-01' from generate_series(1, $1::int) as n`;

export function keysFrom(first: number, count: number): string[] {
  return Array.from({ length: count }, (_, index) => `K${first + index}`);
}

export const refreshedRows = `select count(*)::int as n from quote where quoted_at > '2026-01-01'`;
