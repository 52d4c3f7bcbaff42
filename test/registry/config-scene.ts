import { resolveConfig, type Config, type ResolvedConfig } from '../../src/config/index.ts';
import type { Database } from '../../src/database/index.ts';
import type { DataTypeDefinition } from '../../src/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';

export const tables = `create table public.quote (symbol text primary key, price numeric, ttl_minutes int, ttl interval, quoted_at timestamptz, fetched_at timestamptz);
create table public.profile (symbol text primary key, name text, fetched_at timestamptz);
create table public.symbols (symbol text primary key, listed boolean not null);
create function public.open(key text, data_type text) returns boolean language sql as 'select true';
create function public.opens(key text, data_type text) returns timestamptz language sql as 'select now()';
create function public.is_old(at timestamptz, ttl interval) returns boolean language sql as 'select true';`;

/** A database with the tables of a user. */
export async function scene(): Promise<{ url: string; database: Database }> {
  const url = await createDatabase();
  const database = openDatabase(url);
  await database.query(tables);
  return { url, database };
}

export const quote = {
  name: 'quote',
  source: 'market',
  table: 'quote',
  key: 'symbol',
  timestamp: 'fetched_at',
  ttl: '15m',
} as const satisfies DataTypeDefinition;

export const profile = { ...quote, name: 'profile', table: 'profile', ttl: '7d' } as const satisfies DataTypeDefinition;

export const market = { name: 'market' } as const;

export function wanted(config: Config): ResolvedConfig {
  return resolveConfig({ config, file: 'x.ts' });
}
