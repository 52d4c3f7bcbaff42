import type { DataType, Source } from '../config/index.ts';
import type { SourceRow, TypeRow } from './columns.ts';

/** The registry row of a configured data type. */
export function typeRow(type: DataType): TypeRow {
  const { schedule, keys, priority } = type;
  return {
    data_type: type.name,
    source: type.source,
    fetcher: type.fetcher ?? type.name,
    table_name: type.table,
    key_columns: type.key,
    timestamp_column: type.timestamp,
    ttl: type.ttl,
    ttl_column: type.ttlColumn ?? null,
    empty_ttl: type.empty.ttl ?? null,
    empty_rows: type.empty.rows ?? (type.write.mode === 'replace' ? 'delete' : null),
    max_deletes: type.write.maxDeletes,
    evict_after: type.evictAfter ?? null,
    staleness_function: type.staleness ?? 'pgfresh.is_data_stale',
    refresh_strategy: schedule ? 'scheduled' : 'on-demand',
    refresh_schedule: schedule?.cron ?? null,
    schedule_zone: schedule?.zone ?? 'UTC',
    key_table: keys?.table ?? null,
    key_table_column: keys?.column ?? null,
    key_active_column: keys?.active ?? null,
    key_pattern: type.keyPattern ?? null,
    normalise: type.normalise ?? 'none',
    gate_function: type.gate ?? null,
    gate_opens_function: type.gateOpens ?? null,
    background_priority: priority?.background ?? null,
    ui_threshold: priority?.uiThreshold ?? null,
    depends_on: type.dependsOn,
    estimated_data_size_bytes: type.estimatedBytes,
    source_timestamp_field: type.sourceTimestamp ?? null,
    max_source_age: type.maxSourceAge ?? null,
    max_retries: type.maxRetries,
    max_run: type.maxRun,
    visibility: type.visibility,
    managed_by: 'config',
  };
}

/** The row of a configured source. The database decides whether it is enabled, unless the configuration does. */
export function sourceRow(source: Source): SourceRow {
  return {
    name: source.name,
    ...(source.enabled === undefined ? {} : { enabled: source.enabled }),
    rate_limit_per_minute: source.rateLimitPerMinute ?? null,
    // A source without API keys counts as having one.
    api_keys: Math.max(1, source.apiKeys?.length ?? 0),
    quota_bytes: source.quotaBytes ?? null,
    quota_window: source.quotaWindow,
    quota_buffer: source.quotaBuffer,
    viewed_share: source.viewedShare,
    max_concurrency: source.concurrency ?? null,
    one_key_at_a_time: source.oneAtATimeAKey,
    breaker_failures: source.breaker.failures,
    breaker_window: source.breaker.window,
    breaker_pause: source.breaker.pause,
    managed_by: 'config',
  };
}
