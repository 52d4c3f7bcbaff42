import { durationText, nearMiss, sizeText, timeText } from '../config/index.ts';
import type { Queryable } from '../database/index.ts';
import { PgfreshError } from '../errors/index.ts';

/** A setting that an operator overrode in the database. */
export interface SourceOverride {
  readonly value: string | number | boolean | null;
  readonly config_value: string | number | boolean | null;
  readonly by: string;
  readonly at: string;
  readonly reason: string | null;
}

/** A source as `pgfresh.source_health` shows it: its state, and what it may still use. */
export interface SourceHealth {
  readonly source: string;
  /** `ok`, or why it is not called now. */
  readonly state: 'ok' | 'stopped' | 'off' | 'paused' | 'held' | 'breaker' | 'probing' | 'quota' | 'rate';
  readonly enabled: boolean;
  readonly failure_streak: number;
  readonly last_success_at: Date | null;
  readonly last_failure_at: Date | null;
  /** `infinity` if paused until an operator resumes it. */
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
  /** Bytes per second that spread the quota over its window. */
  readonly quota_pace: number | null;
  /** When it may use bytes again; null if it may now. */
  readonly quota_until: Date | null;
  /** API keys that the provider rejects, from 1. */
  readonly denied_keys: readonly number[];
  /** Settings that an operator overrode in the database, by column; intervals in seconds. */
  readonly overrides: Readonly<Record<string, SourceOverride>>;
  /** Its data types that are paused because of their answers. */
  readonly paused_types: readonly PausedType[];
}

/** A paused data type: its answers are refused, or older than the stored rows. */
interface PausedType {
  readonly data_type: string;
  readonly kind: 'refused' | 'older_source';
  readonly until: string;
  readonly reason: string;
}

/** Notes on a source beyond its state, one sentence each. */
export function notesOf(source: SourceHealth): string[] {
  const { pause_reason: reason, state, quota_until: until, denied_keys: denied, paused_types: types } = source;
  return [
    ...(reason === null ? [] : [reason]),
    ...(state === 'quota' && until ? [`used up until ${timeText(until)}`] : []),
    ...(denied.length > 0 && reason === null ? [`API key ${denied.join(', ')} refused`] : []),
    ...types.map((type) => `${type.data_type} paused until ${timeText(type.until)}: ${type.reason}`),
    ...overrideNotes(source),
  ];
}

/** The overrides of a source, with author and reason, one sentence each. */
export function overrideNotes({ overrides }: SourceHealth): string[] {
  return Object.entries(overrides).map(([column, override]) => overrideText(column, override));
}

function overrideText(column: string, { value, config_value: configured, by, at, reason }: SourceOverride): string {
  const why = reason === null ? '' : ` (${reason})`;
  const [set, instead] = [settingText(column, value), settingText(column, configured)];
  return `${column} ${set} instead of ${instead}, set by ${by} at ${timeText(at)}${why}`;
}

const times = ['quota_window', 'breaker_window', 'breaker_pause'];

/** A setting in a human-readable unit. */
function settingText(column: string, value: SourceOverride['value']): string {
  if (typeof value !== 'number') return String(value ?? 'none');
  if (times.includes(column)) return durationText(value * 1_000);
  return column === 'quota_bytes' ? sizeText(value) : String(value);
}

/** The health of every source, ordered by name. */
export function listSources(db: Queryable): Promise<SourceHealth[]> {
  return db.query<SourceHealth>(`
    select source, state, enabled, failure_streak, last_success_at, last_failure_at, paused_until::text, paused_by, pause_reason, breaker_opened_at,
      rate_limit_per_minute, api_keys, calls_free, next_call_at, max_concurrency, one_key_at_a_time, quota_cap, quota_used, quota_reserved, quota_free,
      quota_pace, quota_until, denied_keys, paused_types, overrides
    from pgfresh.source_health order by source`);
}

/** The health of one source; an unknown name is an error that suggests the closest one. */
export async function showSource(db: Queryable, name: string): Promise<SourceHealth> {
  const sources = await listSources(db);
  const found = sources.find(({ source }) => source === name);
  if (found) return found;
  const names = sources.map(({ source }) => source);
  const near = nearMiss(name, names);
  const hint = near ? `; did you mean "${near}"?` : names.length === 0 ? '; there are none yet' : '';
  throw new PgfreshError('PGF_SOURCE_UNKNOWN', { problem: `There is no source "${name}"${hint}` });
}
