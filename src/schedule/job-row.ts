import { durationText, type Job } from '../config/index.ts';
import { storableJson } from '../database/index.ts';

/** What a column holds: how it is read, written and shown. Intervals are milliseconds here. */
type Kind = 'text' | 'int' | 'boolean' | 'interval' | 'jsonb' | 'date[]' | 'regrole';

/** The columns of scheduled_jobs that a configuration decides about. */
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

/** The row of a job of the configuration. As whom it runs is left to the database unless it is said. */
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

/** The parameter of a column in an insert or an update, with its cast. */
export function parameter(name: JobColumn, place: number): string {
  const kind = columns[name];
  if (kind === 'interval') return `make_interval(secs => $${place}::float8 / 1000)`;
  return kind === 'regrole' ? `quote_ident($${place}::text)::regrole` : `$${place}::${kind}`;
}

/** A value as it is sent. */
export function sent(name: JobColumn, value: unknown): unknown {
  return columns[name] === 'jsonb' ? storableJson(value) : value;
}

/** A value as people write it, and equal for equal values. */
export function valueText(name: JobColumn, value: unknown): string {
  if (value === null || value === undefined || (Array.isArray(value) && value.length === 0)) return 'none';
  // PostgreSQL keeps microseconds.
  if (columns[name] === 'interval') return durationText(Math.round((value as number) * 1_000) / 1_000);
  return typeof value === 'string' ? value : JSON.stringify(inOrder(value));
}

/** An object as PostgreSQL keeps none: its keys in the order of their names. */
function inOrder(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(inOrder);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([key, inner]) => [key, inOrder(inner)]));
}
