/** A user's table that mirrors a provider, and a registry row for it, for tests to which it does not matter what is in it. */
export const mirror = {
  table: 'create table if not exists public.mirror (key text primary key, fetched_at timestamptz)',
  columns: 'table_name, timestamp_column, ttl',
  values: `'mirror', 'fetched_at', interval '1 minute'`,
} as const;
