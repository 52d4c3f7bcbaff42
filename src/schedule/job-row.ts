import { durationText, type Job } from '../config/index.ts';
import { storableJson } from '../database/index.ts';

/** A column's kind: how it is read, written and shown. Intervals are milliseconds here. */
type Kind = 'text' | 'int' | 'boolean' | 'interval' | 'jsonb' | 'date[]' | 'regrole';

/** The columns of scheduled_jobs that the configuration sets. */
const columns = {
  name: 'text',
  description: 'text',
  kind: 'text',
  function_name: 'text',
  schedule: 'text',
  timezone: 'text',
  every_min: 'interval',
  every_max: 'interval',
  failure_min: 'interval',
  failure_max: 'interval',
  enabled: 'boolean',
  params: 'jsonb',
  timeout: 'interval',
  retries: 'int',
  retry_base: 'interval',
  catch_up: 'text',
  catch_up_window: 'interval',
  catch_up_max: 'int',
  overlap: 'text',
  jitter: 'interval',
  blackout_dates: 'date[]',
  owner: 'regrole',
  managed_by: 'text',
} as const satisfies Readonly<Record<string, Kind>>;

export type JobColumn = keyof typeof columns;
export type JobRow = { readonly [Name in JobColumn]?: unknown } & { readonly name: string };

/** The row of a configured job. Without an explicit role, the database chooses the role to run as. */
export function jobRow(job: Job): JobRow {
  const [everyMin, everyMax] = job.every ?? [null, null];
  const [failureMin, failureMax] = job.afterFailure ?? [null, null];
  return {
    name: job.name,
    description: job.description ?? null,
    kind: job.handler ? 'handler' : 'sql',
    function_name: job.function ?? job.name,
    schedule: job.schedule ?? null,
    timezone: job.timezone,
    every_min: everyMin,
    every_max: everyMax,
    failure_min: failureMin,
    failure_max: failureMax,
    enabled: job.enabled,
    params: job.params,
    timeout: job.timeout,
    retries: job.retries,
    retry_base: job.retryBase,
    catch_up: job.catchUp,
    catch_up_window: job.catchUpWindow ?? null,
    catch_up_max: job.catchUpMax,
    overlap: job.overlap,
    jitter: job.jitter ?? 0,
    blackout_dates: job.blackoutDates,
    ...(job.owner === undefined ? {} : { owner: job.owner }),
    managed_by: 'config',
  };
}

export const selectList = (Object.entries(columns) as [JobColumn, Kind][])
  .map(([name, kind]) => {
    if (kind === 'interval') return `extract(epoch from ${name})::float8 * 1000 as ${name}`;
    if (kind === 'regrole') return `(select rolname::text from pg_roles where oid = ${name}) as ${name}`;
    return kind === 'date[]' ? `${name}::text[] as ${name}` : name;
  })
  .join(', ');

/** A column's parameter in an insert or update, with its cast. */
export function parameter(name: JobColumn, place: number): string {
  const kind = columns[name];
  if (kind === 'interval') return `make_interval(secs => $${place}::float8 / 1000)`;
  return kind === 'regrole' ? `quote_ident($${place}::text)::regrole` : `$${place}::${kind}`;
}

/** A value as sent to the database. */
export function sent(name: JobColumn, value: unknown): unknown {
  return columns[name] === 'jsonb' ? storableJson(value) : value;
}

/** A value as people write it; equal values give equal text. */
export function valueText(name: JobColumn, value: unknown): string {
  if (value === null || value === undefined || (Array.isArray(value) && value.length === 0)) return 'none';
  // PostgreSQL rounds to microseconds.
  if (columns[name] === 'interval') return durationText(Math.round((value as number) * 1_000) / 1_000);
  return typeof value === 'string' ? value : JSON.stringify(inOrder(value));
}

/** An object with sorted keys, so that equal objects compare equal. */
function inOrder(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(inOrder);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([key, inner]) => [key, inOrder(inner)]));
}
