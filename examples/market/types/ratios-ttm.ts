import { defineDataType } from 'pgfresh';
import { z } from 'zod';
import { firstWrong, ofTheFuture, outside } from './plausible.ts';

// There is no price-earnings ratio of a loss, and no yield where nothing is paid.
const answer = z.strictObject({
  symbol: z.string().min(1),
  peRatio: z.number().nullable(),
  pbRatio: z.number(),
  psRatio: z.number(),
  debtToEquity: z.number(),
  currentRatio: z.number(),
  grossMargin: z.number(),
  operatingMargin: z.number(),
  netMargin: z.number(),
  returnOnEquity: z.number(),
  returnOnAssets: z.number(),
  dividendYield: z.number().nullable(),
  asOf: z.iso.datetime(),
});

const row = z.strictObject({
  symbol: z.string(),
  pe_ratio: z.number().nullable(),
  pb_ratio: z.number(),
  ps_ratio: z.number(),
  debt_to_equity: z.number(),
  current_ratio: z.number(),
  gross_margin: z.number(),
  operating_margin: z.number(),
  net_margin: z.number(),
  return_on_equity: z.number(),
  return_on_assets: z.number(),
  dividend_yield: z.number().nullable(),
  source_updated_at: z.iso.datetime(),
});

export const ratiosTtm = defineDataType({
  name: 'ratios-ttm',
  source: 'market',
  table: 'ratios_ttm',
  key: 'symbol',
  timestamp: 'fetched_at',
  ttl: '5m',
  keys: { table: 'symbols', column: 'symbol', active: 'active' },
  normalise: 'upper',
  dependsOn: ['profile'],
  estimatedBytes: 700,
  sourceTimestamp: 'source_updated_at',
  schema: answer,
  row,
  request: (symbol) => ({ url: `/v1/ratios/${encodeURIComponent(symbol)}` }),
  rows: (ratios) => ({
    symbol: ratios.symbol,
    pe_ratio: ratios.peRatio,
    pb_ratio: ratios.pbRatio,
    ps_ratio: ratios.psRatio,
    debt_to_equity: ratios.debtToEquity,
    current_ratio: ratios.currentRatio,
    gross_margin: ratios.grossMargin,
    operating_margin: ratios.operatingMargin,
    net_margin: ratios.netMargin,
    return_on_equity: ratios.returnOnEquity,
    return_on_assets: ratios.returnOnAssets,
    dividend_yield: ratios.dividendYield,
    source_updated_at: ratios.asOf,
  }),
  sanity: (ratios, { now }) =>
    firstWrong(
      outside('pe_ratio', ratios.pe_ratio, 0, 1e6),
      outside('current_ratio', ratios.current_ratio, 0, 1_000),
      outside('gross_margin', ratios.gross_margin, -100, 1),
      outside('dividend_yield', ratios.dividend_yield, 0, 10),
      ofTheFuture(ratios.source_updated_at, now),
    ),
});
