import { z } from 'zod';
import { resolveConfig, type ResolvedConfig } from '../../src/config/index.ts';
import { defineDataType, defineSource } from '../../src/index.ts';

/** Tables that count every row that is written into them. The price 13 is refused. */
export const killTables = `
  create table public.item (symbol text primary key, price numeric check (price <> 13), fetched_at timestamptz);
  create table public.part (symbol text, place int, fetched_at timestamptz, primary key (symbol, place));
  create table public.audit (symbol text);
  create function public.note() returns trigger language plpgsql as 'begin insert into public.audit values (new.symbol); return new; end';
  create trigger note after insert or update on public.item for each row execute function public.note();
  create trigger note after insert or update on public.part for each row when (new.place = 1) execute function public.note();`;

/** What a worker that is to be killed refreshes: rows that are merged, and rows that are replaced. */
export function killConfig(baseUrl: string): ResolvedConfig {
  const source = defineSource({
    name: 'market',
    baseUrl,
    allowPrivateAddresses: true,
    cacheEntries: 0,
    quotaBytes: '1GB',
  });
  const common = { source, key: 'symbol', timestamp: 'fetched_at', ttl: '1h', maxRetries: 0, estimatedBytes: 1_000 };
  const item = defineDataType({
    ...common,
    name: 'item',
    table: 'item',
    schema: z.object({ symbol: z.string(), price: z.number() }),
    request: (key) => ({ url: `/item/${key}` }),
    rows: (answer) => answer,
  });
  const part = defineDataType({
    ...common,
    name: 'part',
    table: 'part',
    write: 'replace',
    schema: z.object({ symbol: z.string(), price: z.number() }),
    request: (key) => ({ url: `/part/${key}` }),
    rows: ({ symbol }) => [1, 2].map((place) => ({ symbol, place })),
  });
  return resolveConfig({ config: { dataTypes: [item, part] } });
}
