/** A user's table that mirrors a provider, and its registry row, for tests that do not care about the content. */
export const mirror = {
  table: 'create table if not exists public.mirror (key text primary key, fetched_at timestamptz)',
  columns: 'table_name, timestamp_column, ttl',
  values: `'mirror', 'fetched_at', interval '1 minute'`,
} as const;
