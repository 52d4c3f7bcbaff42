import { defineDataType } from 'pgfresh';
import { z } from 'zod';
import { firstWrong, ofTheFuture, outside } from './plausible.ts';
import { agree } from './rows-that-agree.ts';

const dividend = z.strictObject({
  symbol: z.string().min(1),
  exDate: z.iso.date(),
  recordDate: z.iso.date(),
  paymentDate: z.iso.date(),
  declaredDate: z.iso.date(),
  amount: z.number(),
});

const answer = z.strictObject({
  symbol: z.string().min(1),
  currency: z.string().length(3),
  updatedAt: z.iso.datetime(),
  dividends: z
    .array(dividend)
    .max(1_000)
    .refine(
      agree<z.output<typeof dividend>>(({ exDate }) => exDate),
      'expected one dividend of a day',
    ),
});

const row = z.strictObject({
  symbol: z.string(),
  ex_date: z.iso.date(),
  record_date: z.iso.date(),
  payment_date: z.iso.date(),
  declared_date: z.iso.date(),
  amount: z.number(),
  currency: z.string(),
  source_updated_at: z.iso.datetime(),
});

/** Many rows per key, and none for companies that pay nothing, which are checked again after an hour. */
export const dividendHistory = defineDataType({
  name: 'dividend-history',
  source: 'market',
  table: 'dividends',
  key: 'symbol',
  timestamp: 'fetched_at',
  ttl: '1d',
  empty: { ttl: '1h' },
  keys: { table: 'symbols', column: 'symbol', active: 'active' },
  normalise: 'upper',
  dependsOn: ['profile'],
  estimatedBytes: '1KB',
  sourceTimestamp: 'source_updated_at',
  // Past dividends do not go away: a shorter list is refused.
  write: { mode: 'replace', maxDeletes: 0 },
  schema: answer,
  row,
  request: (symbol) => ({ url: `/v1/dividends/${encodeURIComponent(symbol)}`, query: { limit: 12 } }),
  rows: ({ currency, updatedAt, dividends }) =>
    dividends.map((paid) => ({
      symbol: paid.symbol,
      ex_date: paid.exDate,
      record_date: paid.recordDate,
      payment_date: paid.paymentDate,
      declared_date: paid.declaredDate,
      amount: paid.amount,
      currency,
      source_updated_at: updatedAt,
    })),
  sanity: (paid, { now }) =>
    firstWrong(outside('amount', paid.amount, 0.000001, 1_000_000), ofTheFuture(paid.source_updated_at, now)),
});
