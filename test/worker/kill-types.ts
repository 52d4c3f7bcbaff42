import { z } from 'zod';
import { resolveConfig, type ResolvedConfig } from '../../src/config/index.ts';
import { defineDataType, defineSource } from '../../src/index.ts';

/** Symbols whose rows the table refuses, and one at which the provider fails. */
export const refused = ['IBM', 'CSCO'] as const;
export const unanswered = 'INTC';

/** Tables that count every row that comes to be written, also one that would be found to be there already. */
export const killTables = `
  create table public.item (symbol text primary key, price numeric, fetched_at timestamptz, check (symbol not in ('${refused.join("', '")}')));
  create table public.part (symbol text, place int, fetched_at timestamptz, primary key (symbol, place));
  create table public.audit (symbol text);
  create function public.note() returns trigger language plpgsql as 'begin insert into public.audit values (new.symbol); return new; end';
  create trigger note before insert on public.item for each row execute function public.note();
  create trigger note before insert on public.part for each row when (new.place = 1) execute function public.note();`;

export const apiKey = 'key-of-a-campaign';

/** What workers refresh that are killed or cut off, from the provider of the market: rows that are merged, and rows that are replaced. */
export function killConfig(baseUrl: string): ResolvedConfig {
  const source = defineSource({
    name: 'market',
    baseUrl,
    allowPrivateAddresses: true,
    cacheEntries: 0,
    quotaBytes: '1GB',
    authorize: () => ({ headers: { 'x-api-key': apiKey } }),
  });
  const common = {
    source,
    key: 'symbol',
    timestamp: 'fetched_at',
    ttl: '1h',
    maxRetries: 0,
    schema: z.object({ symbol: z.string() }),
  } as const;
  const item = defineDataType({
    ...common,
    name: 'item',
    table: 'item',
    schema: z.object({ symbol: z.string(), price: z.number() }),
    request: (symbol) => ({ url: `/v1/quote/${symbol}` }),
    rows: ({ symbol, price }) => ({ symbol, price }),
  });
  const part = defineDataType({
    ...common,
    name: 'part',
    table: 'part',
    write: 'replace',
    request: (symbol) => ({ url: `/v1/profile/${symbol}` }),
    rows: ({ symbol }) => [1, 2].map((place) => ({ symbol, place })),
  });
  return resolveConfig({ config: { dataTypes: [item, part] } });
}
