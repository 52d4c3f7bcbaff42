import { defineDataType } from 'pgfresh';
import { z } from 'zod';
import { firstWrong, ofTheFuture, outside } from './plausible.ts';
import { agree } from './rows-that-agree.ts';

const amount = z.number();

const statement = z.strictObject({
  symbol: z.string().min(1),
  fiscalYear: z.int(),
  period: z.enum(['Q1', 'Q2', 'Q3', 'Q4', 'FY']),
  periodEnd: z.iso.date(),
  filedAt: z.iso.datetime(),
  revenue: amount,
  costOfRevenue: amount,
  grossProfit: amount,
  // Companies that do no research report none.
  researchAndDevelopment: amount.nullable(),
  operatingIncome: amount,
  netIncome: amount,
  eps: amount,
  shares: z.int(),
  totalAssets: amount,
  totalLiabilities: amount,
  totalEquity: amount,
  cash: amount,
  totalDebt: amount,
  operatingCashFlow: amount,
  capitalExpenditure: amount,
  freeCashFlow: amount,
});

const answer = z.strictObject({
  symbol: z.string().min(1),
  currency: z.string().length(3),
  period: z.enum(['quarter', 'annual']),
  updatedAt: z.iso.datetime(),
  statements: z
    .array(statement)
    .max(100)
    .refine(
      agree<z.output<typeof statement>>(({ fiscalYear, period }) => `${fiscalYear} ${period}`),
      'expected one statement of a period',
    ),
});

const row = z.strictObject({
  symbol: z.string(),
  fiscal_year: z.int(),
  period: z.string(),
  period_end: z.iso.date(),
  filed_at: z.iso.datetime(),
  currency: z.string(),
  revenue: amount,
  cost_of_revenue: amount,
  gross_profit: amount,
  research_and_development: amount.nullable(),
  operating_income: amount,
  net_income: amount,
  eps: amount,
  shares: z.int(),
  total_assets: amount,
  total_liabilities: amount,
  total_equity: amount,
  cash: amount,
  total_debt: amount,
  operating_cash_flow: amount,
  capital_expenditure: amount,
  free_cash_flow: amount,
  source_updated_at: z.iso.datetime(),
});

/** Many rows per key. They are large and change rarely, so they stay at priority 500 below a thousand viewers. */
export const financialStatements = defineDataType({
  name: 'financial-statements',
  source: 'market',
  table: 'financial_statements',
  key: 'symbol',
  timestamp: 'fetched_at',
  ttl: '1d',
  empty: { ttl: '5m' },
  keys: { table: 'symbols', column: 'symbol', active: 'active' },
  normalise: 'upper',
  dependsOn: ['profile'],
  priority: { background: 500, uiThreshold: 1_000 },
  estimatedBytes: '3KB',
  sourceTimestamp: 'source_updated_at',
  // Filed statements do not go away: a shorter list is refused.
  write: { mode: 'replace', maxDeletes: 0 },
  schema: answer,
  row,
  request: (symbol) => ({
    url: `/v1/financial-statements/${encodeURIComponent(symbol)}`,
    query: { period: 'quarter', limit: 8 },
  }),
  rows: ({ currency, updatedAt, statements }) =>
    statements.map((filed) => ({
      symbol: filed.symbol,
      fiscal_year: filed.fiscalYear,
      period: filed.period,
      period_end: filed.periodEnd,
      filed_at: filed.filedAt,
      currency,
      revenue: filed.revenue,
      cost_of_revenue: filed.costOfRevenue,
      gross_profit: filed.grossProfit,
      research_and_development: filed.researchAndDevelopment,
      operating_income: filed.operatingIncome,
      net_income: filed.netIncome,
      eps: filed.eps,
      shares: filed.shares,
      total_assets: filed.totalAssets,
      total_liabilities: filed.totalLiabilities,
      total_equity: filed.totalEquity,
      cash: filed.cash,
      total_debt: filed.totalDebt,
      operating_cash_flow: filed.operatingCashFlow,
      capital_expenditure: filed.capitalExpenditure,
      free_cash_flow: filed.freeCashFlow,
      source_updated_at: updatedAt,
    })),
  sanity: (filed, { now }) =>
    firstWrong(
      outside('fiscal_year', filed.fiscal_year, 1900, 2200),
      outside('revenue', filed.revenue, 0, 5e14),
      outside('total_assets', filed.total_assets, 0, 5e15),
      outside('shares', filed.shares, 1, 1e13),
      outside(
        'what the balance sheet is off by',
        filed.total_assets - filed.total_liabilities - filed.total_equity,
        -1,
        1,
      ),
      outside('what the gross profit is off by', filed.revenue - filed.cost_of_revenue - filed.gross_profit, -1, 1),
      ofTheFuture(filed.source_updated_at, now),
      ofTheFuture(filed.filed_at, now),
    ),
});
