import { defineDataType } from 'pgfresh';
import { z } from 'zod';
import { firstWrong, ofTheFuture, outside } from './plausible.ts';

const answer = z.strictObject({
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

const row = z.strictObject({
  symbol: z.string(),
  price: z.number(),
  change: z.number(),
  change_percent: z.number(),
  open: z.number(),
  high: z.number(),
  low: z.number(),
  previous_close: z.number(),
  volume: z.int(),
  average_volume: z.int(),
  market_cap: z.number(),
  currency: z.string(),
  source_updated_at: z.iso.datetime(),
});

/** A quote is refreshed only while its exchange is open, unless there is none yet. */
export const quote = defineDataType({
  name: 'quote',
  source: 'market',
  table: 'quotes',
  key: 'symbol',
  timestamp: 'fetched_at',
  ttl: '20s',
  keys: { table: 'symbols', column: 'symbol', active: 'active' },
  normalise: 'upper',
  gate: 'is_exchange_open',
  gateOpens: 'exchange_opens_at',
  dependsOn: ['profile'],
  estimatedBytes: 700,
  sourceTimestamp: 'source_updated_at',
  schema: answer,
  row,
  request: (symbol) => ({ url: `/v1/quote/${encodeURIComponent(symbol)}` }),
  rows: (quoted) => ({
    symbol: quoted.symbol,
    price: quoted.price,
    change: quoted.change,
    change_percent: quoted.changePercent,
    open: quoted.open,
    high: quoted.high,
    low: quoted.low,
    previous_close: quoted.previousClose,
    volume: quoted.volume,
    average_volume: quoted.averageVolume,
    market_cap: quoted.marketCap,
    currency: quoted.currency,
    source_updated_at: quoted.timestamp,
  }),
  sanity: (quoted, { now }) =>
    firstWrong(
      outside('price', quoted.price, 0.0001, 1_000_000),
      outside('low', quoted.low, 0.0001, quoted.price),
      outside('high', quoted.high, quoted.price, 1_000_000),
      outside('open', quoted.open, quoted.low, quoted.high),
      outside('previous_close', quoted.previous_close, 0.0001, 1_000_000),
      outside('volume', quoted.volume, 0, 1e12),
      outside('market_cap', quoted.market_cap, 1, 1e16),
      ofTheFuture(quoted.source_updated_at, now),
    ),
});
