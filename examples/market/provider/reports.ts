import type { Company } from './company.ts';
import { hash, normal, uniform } from './random.ts';

const dayMs = 86_400_000;

export interface Statement {
  readonly symbol: string;
  readonly fiscalYear: number;
  readonly period: 'Q1' | 'Q2' | 'Q3' | 'Q4' | 'FY';
  readonly periodEnd: string;
  readonly filedAt: string;
  readonly revenue: number;
  readonly costOfRevenue: number;
  readonly grossProfit: number;
  /** Some report none. */
  readonly researchAndDevelopment: number | null;
  readonly operatingIncome: number;
  readonly netIncome: number;
  readonly eps: number;
  readonly shares: number;
  readonly totalAssets: number;
  readonly totalLiabilities: number;
  readonly totalEquity: number;
  readonly cash: number;
  readonly totalDebt: number;
  readonly operatingCashFlow: number;
  readonly capitalExpenditure: number;
  readonly freeCashFlow: number;
}

/** The newest statements that were filed by then, newest first. */
export function statementsOf(company: Company, now: number, period: 'quarter' | 'annual', limit: number): Statement[] {
  const found: Statement[] = [];
  const today = new Date(now);
  // Quarters are numbered through all years.
  const newest = today.getUTCFullYear() * 4 + Math.floor(today.getUTCMonth() / 3) - 1;
  const oldest = 1990 * 4;
  for (let quarter = newest; quarter >= oldest && found.length < limit; quarter--) {
    if (filedAt(company, quarter) > now) continue;
    if (period === 'quarter') found.push(quarterly(company, quarter));
    else if (quarter % 4 === 3) found.push(annual(company, quarter));
  }
  return found;
}

function quarterly(company: Company, quarter: number): Statement {
  const { mark, symbol, shares, basePrice } = company;
  const draw = (what: string) => uniform(mark, quarter, what);
  const whole = (value: number) => Math.round(value / 1_000) * 1_000;
  const growth = 1 + 0.02 * normal(mark, 'growth');
  // A company costs one to eight times what it sells in a year.
  const usual = (shares * basePrice) / 4 / 8 ** uniform(mark, 'sales');
  const revenue = whole(usual * growth ** ((quarter - 2_025 * 4) / 4) * (0.95 + 0.1 * draw('revenue')));
  const costOfRevenue = whole(revenue * (0.35 + 0.3 * uniform(mark, 'cost') + 0.05 * draw('cost')));
  const grossProfit = revenue - costOfRevenue;
  const researches = uniform(mark, 'research') < 0.6;
  const research = whole(revenue * 0.1 * uniform(mark, 'research share'));
  const overhead = whole(revenue * (0.05 + 0.4 * uniform(mark, 'overhead') + 0.05 * draw('overhead')));
  const operatingIncome = grossProfit - (researches ? research : 0) - overhead;
  const netIncome = whole(operatingIncome * (0.7 + 0.1 * draw('tax')));
  const totalAssets = whole(usual * (3 + 5 * uniform(mark, 'assets')));
  const totalLiabilities = whole(totalAssets * (0.3 + 0.4 * uniform(mark, 'debt') + 0.05 * draw('debt')));
  const operatingCashFlow = whole(netIncome + revenue * 0.08 * draw('flow'));
  const capitalExpenditure = whole(revenue * 0.12 * draw('capital'));
  return {
    symbol,
    fiscalYear: Math.floor(quarter / 4),
    period: `Q${((quarter % 4) + 1) as 1 | 2 | 3 | 4}`,
    periodEnd: dateOf(endOf(quarter)),
    filedAt: new Date(filedAt(company, quarter)).toISOString(),
    revenue,
    costOfRevenue,
    grossProfit,
    researchAndDevelopment: researches ? research : null,
    operatingIncome,
    netIncome,
    eps: Number((netIncome / shares).toFixed(4)),
    shares,
    totalAssets,
    totalLiabilities,
    totalEquity: totalAssets - totalLiabilities,
    cash: whole(totalAssets * 0.15 * draw('cash')),
    totalDebt: whole(totalLiabilities * (0.4 + 0.2 * draw('loans'))),
    operatingCashFlow,
    capitalExpenditure,
    freeCashFlow: operatingCashFlow - capitalExpenditure,
  };
}

/** A year is the sum of its quarters, and stands as its last one does. */
function annual(company: Company, lastQuarter: number): Statement {
  const quarters = [3, 2, 1, 0].map((back) => quarterly(company, lastQuarter - back));
  const sum = (field: (one: Statement) => number) => quarters.reduce((total, one) => total + field(one), 0);
  const netIncome = sum((one) => one.netIncome);
  const last = quarters[3]!;
  return {
    ...last,
    period: 'FY',
    revenue: sum((one) => one.revenue),
    costOfRevenue: sum((one) => one.costOfRevenue),
    grossProfit: sum((one) => one.grossProfit),
    researchAndDevelopment: last.researchAndDevelopment === null ? null : sum((one) => one.researchAndDevelopment!),
    operatingIncome: sum((one) => one.operatingIncome),
    netIncome,
    eps: Number((netIncome / company.shares).toFixed(4)),
    operatingCashFlow: sum((one) => one.operatingCashFlow),
    capitalExpenditure: sum((one) => one.capitalExpenditure),
    freeCashFlow: sum((one) => one.freeCashFlow),
  };
}

export interface Dividend {
  readonly symbol: string;
  readonly exDate: string;
  readonly recordDate: string;
  readonly paymentDate: string;
  readonly declaredDate: string;
  readonly amount: number;
}

/** The newest dividends that went ex by then, newest first. A third of the companies pay none. */
export function dividendsOf(company: Company, now: number, limit: number): Dividend[] {
  if (uniform(company.mark, 'pays') < 1 / 3) return [];
  const found: Dividend[] = [];
  const today = new Date(now);
  const newest = today.getUTCFullYear() * 4 + Math.floor(today.getUTCMonth() / 3);
  for (let quarter = newest; found.length < limit; quarter--) {
    const exDay = endOf(quarter) - (10 + (hash(company.mark, quarter, 'ex') % 50)) * dayMs;
    if (exDay > now) continue;
    const yearly = company.price(Math.floor(exDay / 1_000)) * (0.005 + 0.035 * uniform(company.mark, 'yield'));
    found.push({
      symbol: company.symbol,
      exDate: dateOf(exDay),
      recordDate: dateOf(exDay + dayMs),
      paymentDate: dateOf(exDay + 21 * dayMs),
      declaredDate: dateOf(exDay - 28 * dayMs),
      amount: Math.max(0.0001, Number((yearly / 4).toFixed(4))),
    });
  }
  return found;
}

/** The last day of a quarter. */
function endOf(quarter: number): number {
  return Date.UTC(Math.floor(quarter / 4), ((quarter % 4) + 1) * 3, 0);
}

function filedAt({ mark }: Company, quarter: number): number {
  return endOf(quarter) + (28 + (hash(mark, quarter, 'filed') % 20)) * dayMs + (hash(mark, quarter) % 86_400) * 1_000;
}

function dateOf(time: number): string {
  return new Date(time).toISOString().slice(0, 10);
}
