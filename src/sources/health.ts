import { nearMiss } from '../config/index.ts';
import type { Queryable } from '../database/index.ts';
import { PgfreshError } from '../errors/index.ts';

/** A source as `pgfresh.source_health` shows it: how it is, and what it may still use now. */
export interface SourceHealth {
  readonly source: string;
  /** `ok`, or why it is not called now. */
  readonly state: 'ok' | 'stopped' | 'off' | 'paused' | 'held' | 'breaker' | 'probing' | 'quota' | 'rate';
  readonly enabled: boolean;
  readonly failure_streak: number;
  readonly last_success_at: Date | null;
  readonly last_failure_at: Date | null;
  /** `infinity` where it is paused until somebody resumes it. */
  readonly paused_until: string | null;
  readonly paused_by: 'person' | 'provider' | 'breaker' | 'credentials' | null;
  readonly pause_reason: string | null;
  readonly breaker_opened_at: Date | null;
  readonly rate_limit_per_minute: number | null;
  readonly api_keys: number;
  readonly calls_free: number | null;
  readonly next_call_at: Date | null;
  readonly max_concurrency: number | null;
  readonly one_key_at_a_time: boolean;
  readonly quota_cap: number | null;
  readonly quota_used: number | null;
  readonly quota_reserved: number | null;
  readonly quota_free: number | null;
  /** When it may use bytes again; null if it may now. */
  readonly quota_until: Date | null;
  /** API keys that the provider refuses, from 1. */
  readonly denied_keys: readonly number[];
  /** Data types of it that are left alone because of their answers. */
  readonly paused_types: readonly { readonly data_type: string; readonly until: string; readonly reason: string }[];
}

/** How every source is, by name. */
export function listSources(db: Queryable): Promise<SourceHealth[]> {
  return db.query<SourceHealth>(`
    select source, state, enabled, failure_streak, last_success_at, last_failure_at, paused_until::text, paused_by, pause_reason, breaker_opened_at,
      rate_limit_per_minute, api_keys, calls_free, next_call_at, max_concurrency, one_key_at_a_time, quota_cap, quota_used, quota_reserved, quota_free,
      quota_until, denied_keys, paused_types
    from pgfresh.source_health order by source`);
}

/** How one source is; refuses a name that is not there, with the one that was probably meant. */
export async function showSource(db: Queryable, name: string): Promise<SourceHealth> {
  const sources = await listSources(db);
  const found = sources.find(({ source }) => source === name);
  if (found) return found;
  const names = sources.map(({ source }) => source);
  const near = nearMiss(name, names);
  const hint = near ? `; did you mean "${near}"?` : names.length === 0 ? '; there are none yet' : '';
  throw new PgfreshError('PGF_SOURCE_UNKNOWN', { problem: `There is no source "${name}"${hint}` });
}
