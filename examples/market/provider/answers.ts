import { round, type Company } from './company.ts';
import { dividendsOf, statementsOf } from './reports.ts';
import { uniform } from './random.ts';
import { stepMs } from './walk.ts';

/** A document as JSON has it. */
export type Document = Record<string, unknown>;

const dayMs = 86_400_000;
const dayParts = 32;

/** What a route answers about a company at a time. The same question at the same time has the same answer. */
export const answers = {
  quote(company, now) {
    const step = Math.floor(now / stepMs);
    const day = (Math.floor(now / dayMs) * dayMs) / stepMs;
    const price = company.price(step);
    const open = company.price(day);
    const previousClose = company.price(day - 1);
    const prices = [price, open];
    for (let at = day; at < step; at += dayMs / stepMs / dayParts) prices.push(company.price(at));
    return {
      symbol: company.symbol,
      exchange: company.exchange,
      currency: company.currency,
      price,
      change: round(price - previousClose, 4),
      changePercent: round((100 * (price - previousClose)) / previousClose, 4),
      open,
      high: Math.max(...prices),
      low: Math.min(...prices),
      previousClose,
      volume: Math.round(company.averageVolume * 2 * uniform(company.mark, day) * ((step - day) / (dayMs / stepMs))),
      averageVolume: company.averageVolume,
      marketCap: Math.round(price * company.shares),
      timestamp: new Date(step * stepMs).toISOString(),
    };
  },

  profile(company, now) {
    const { symbol, exchange, currency, country, sector, industry, ceo, website, employees, ipoDate } = company;
    return {
      symbol,
      companyName: company.name,
      exchange,
      currency,
      country,
      sector,
      industry,
      ceo,
      employees,
      ipoDate,
      website,
      description: `${company.name} is a company of the ${sector.toLowerCase()} sector with ${employees} people. It is made up, and so is everything about it.`,
      isActivelyTrading: true,
      updatedAt: startOfDay(now),
    };
  },

  'financial-statements'(company, now, { period, limit }) {
    const statements = statementsOf(company, now, period, limit);
    return {
      symbol: company.symbol,
      currency: company.currency,
      period,
      updatedAt: statements[0]?.filedAt ?? startOfDay(now),
      statements,
    };
  },

  ratios(company, now) {
    const asOf = Math.floor(now / (5 * 60_000)) * 5 * 60_000;
    const price = company.price(asOf / stepMs);
    const year = statementsOf(company, asOf, 'quarter', 4);
    const sum = (field: 'revenue' | 'grossProfit' | 'operatingIncome' | 'netIncome') =>
      year.reduce((total, quarter) => total + quarter[field], 0);
    const { totalAssets, totalEquity, totalDebt } = year[0]!;
    const [revenue, netIncome] = [sum('revenue'), sum('netIncome')];
    const paid = dividendsOf(company, asOf, 4).reduce((total, { amount }) => total + amount, 0);
    return {
      symbol: company.symbol,
      // No ratio for a loss.
      peRatio: netIncome > 0 ? round((price * company.shares) / netIncome, 4) : null,
      pbRatio: round((price * company.shares) / totalEquity, 4),
      psRatio: round((price * company.shares) / revenue, 4),
      debtToEquity: round(totalDebt / totalEquity, 4),
      currentRatio: round(0.8 + 2 * uniform(company.mark, 'current'), 4),
      grossMargin: round(sum('grossProfit') / revenue, 4),
      operatingMargin: round(sum('operatingIncome') / revenue, 4),
      netMargin: round(netIncome / revenue, 4),
      returnOnEquity: round(netIncome / totalEquity, 4),
      returnOnAssets: round(netIncome / totalAssets, 4),
      dividendYield: paid > 0 ? round(paid / price, 4) : null,
      asOf: new Date(asOf).toISOString(),
    };
  },

  dividends(company, now, { limit }) {
    return {
      symbol: company.symbol,
      currency: company.currency,
      updatedAt: startOfDay(now),
      dividends: dividendsOf(company, now, limit),
    };
  },
} as const satisfies Record<string, (company: Company, now: number, options: AnswerOptions) => Document>;

export type Route = keyof typeof answers;
export const routes = Object.keys(answers) as Route[];

export interface AnswerOptions {
  readonly period: 'quarter' | 'annual';
  readonly limit: number;
}

function startOfDay(now: number): string {
  return new Date(Math.floor(now / dayMs) * dayMs).toISOString();
}
