import { defineDataType } from 'pgfresh';
import { z } from 'zod';
import { firstWrong, ofTheFuture, outside } from './plausible.ts';

// A company may have no chief and no website. Nothing else may be null.
const answer = z.strictObject({
  symbol: z.string().min(1),
  companyName: z.string().min(1),
  exchange: z.string().min(1),
  currency: z.string().length(3),
  country: z.string().length(2),
  sector: z.string().min(1),
  industry: z.string().min(1),
  ceo: z.string().min(1).nullable(),
  employees: z.int(),
  ipoDate: z.iso.date(),
  website: z.url().nullable(),
  description: z.string().max(10_000),
  isActivelyTrading: z.boolean(),
  updatedAt: z.iso.datetime(),
});

const row = z.strictObject({
  symbol: z.string(),
  company_name: z.string(),
  exchange: z.string(),
  currency: z.string(),
  country: z.string(),
  sector: z.string(),
  industry: z.string(),
  ceo: z.string().nullable(),
  employees: z.int(),
  ipo_date: z.iso.date(),
  website: z.string().nullable(),
  description: z.string(),
  is_actively_trading: z.boolean(),
  source_updated_at: z.iso.datetime(),
});

/** The rows of all other types refer to this one, so it comes first. */
export const profile = defineDataType({
  name: 'profile',
  source: 'market',
  table: 'profiles',
  key: 'symbol',
  timestamp: 'fetched_at',
  ttl: '7d',
  // Every company has one, so a provider that has none is asked again soon: all other types wait for it.
  empty: { ttl: '1m' },
  keys: { table: 'symbols', column: 'symbol', active: 'active' },
  normalise: 'upper',
  estimatedBytes: 900,
  sourceTimestamp: 'source_updated_at',
  schema: answer,
  row,
  request: (symbol) => ({ url: `/v1/profile/${encodeURIComponent(symbol)}` }),
  rows: (company) => ({
    symbol: company.symbol,
    company_name: company.companyName,
    exchange: company.exchange,
    currency: company.currency,
    country: company.country,
    sector: company.sector,
    industry: company.industry,
    ceo: company.ceo,
    employees: company.employees,
    ipo_date: company.ipoDate,
    website: company.website,
    description: company.description,
    is_actively_trading: company.isActivelyTrading,
    source_updated_at: company.updatedAt,
  }),
  sanity: (company, { now }) =>
    firstWrong(outside('employees', company.employees, 0, 10_000_000), ofTheFuture(company.source_updated_at, now)),
});
