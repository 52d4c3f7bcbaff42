import { durationText } from '../config/index.ts';

/** The type of a column: how it is read, written and displayed. Intervals are in milliseconds here. */
type Kind = 'text' | 'text[]' | 'int' | 'bigint' | 'float8' | 'boolean' | 'interval';

export type Value = string | number | boolean | readonly string[] | null;

/** The columns of data_type_registry that users set, in display order. */
export const typeColumns = {
  data_type: 'text',
  source: 'text',
  fetcher: 'text',
  table_name: 'text',
  key_columns: 'text[]',
  timestamp_column: 'text',
  ttl: 'interval',
  ttl_column: 'text',
  empty_ttl: 'interval',
  empty_rows: 'text',
  max_deletes: 'float8',
  evict_after: 'interval',
  staleness_function: 'text',
  refresh_strategy: 'text',
  refresh_schedule: 'text',
  schedule_zone: 'text',
  key_table: 'text',
  key_table_column: 'text',
  key_active_column: 'text',
  key_pattern: 'text',
  normalise: 'text',
  gate_function: 'text',
  gate_opens_function: 'text',
  background_priority: 'int',
  ui_threshold: 'int',
  depends_on: 'text[]',
  estimated_data_size_bytes: 'bigint',
  source_timestamp_field: 'text',
  max_source_age: 'interval',
  max_retries: 'int',
  max_run: 'interval',
  visibility: 'text',
  managed_by: 'text',
} as const satisfies Readonly<Record<string, Kind>>;

/** The settings of a source; columns that record its state are not written here. */
export const sourceColumns = {
  name: 'text',
  enabled: 'boolean',
  rate_limit_per_minute: 'int',
  api_keys: 'int',
  quota_bytes: 'bigint',
  quota_window: 'interval',
  quota_buffer: 'float8',
  viewed_share: 'float8',
  max_concurrency: 'int',
  one_key_at_a_time: 'boolean',
  breaker_failures: 'int',
  breaker_window: 'interval',
  breaker_pause: 'interval',
  managed_by: 'text',
} as const satisfies Readonly<Record<string, Kind>>;

type Columns = Readonly<Record<string, Kind>>;
export type Row<C extends Columns> = { readonly [Name in keyof C]: Value };
export type TypeRow = Row<typeof typeColumns> & { readonly data_type: string; readonly depends_on: readonly string[] };
export type SourceRow = Partial<Row<typeof sourceColumns>> & { readonly name: string };

/** Settings that an operator overrode in the database; intervals are in seconds. */
export interface Override {
  readonly value: Value;
  readonly config_value: Value;
  readonly by: string;
  readonly at: string;
  readonly reason: string | null;
}

/** A source as stored, with its last configured values and its overrides, by column. */
export type StoredSource = SourceRow & {
  readonly config: Readonly<Record<string, Value>>;
  readonly overrides: Readonly<Record<string, Override>>;
};

/** The select list for these columns. */
export function selectList(columns: Columns): string {
  return Object.entries(columns)
    .map(([name, kind]) => {
      if (kind === 'interval') return `extract(epoch from ${name})::float8 * 1000 as ${name}`;
      return kind === 'float8' ? `${name}::float8 as ${name}` : name;
    })
    .join(', ');
}

/** The parameter for a column in an insert or update, with its cast. */
export function parameter(columns: Columns, name: string, place: number): string {
  const kind = columns[name]!;
  return kind === 'interval' ? `make_interval(secs => $${place}::float8 / 1000)` : `$${place}::${kind}`;
}

/** A value in human-readable form. */
export function valueText(columns: Columns, name: string, value: Value): string {
  if (value === null || (Array.isArray(value) && value.length === 0)) return 'none';
  if (columns[name] === 'interval') return durationText(value as number);
  return Array.isArray(value) ? value.join(', ') : String(value);
}
