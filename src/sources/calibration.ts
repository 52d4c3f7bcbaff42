import type { Queryable } from '../database/index.ts';
import { showSource } from './health.ts';

/** Usage as the provider reports it, next to the ledger's own count. */
export interface Calibration {
  readonly source: string;
  readonly since: Date;
  readonly provider_bytes: number;
  readonly ledger_bytes: number;
  readonly gap_bytes: number;
  /** The id of the correction; null for a dry run. */
  readonly correction: number | null;
}

interface CalibrationOptions {
  /** Start of the provider's count; defaults to the start of the quota window. */
  readonly since?: Date | undefined;
  readonly reason?: string | undefined;
  readonly dryRun?: boolean | undefined;
}

const enter = `
  insert into pgfresh.usage_corrections (source, provider_bytes, since, reason)
  values ($1::text, $2::bigint, $3::timestamptz, $4::text)
  returning source, since, provider_bytes, provider_bytes - bytes as ledger_bytes, bytes as gap_bytes, id as correction`;

const compare = `
  select s.name as source, c.since, $2::bigint as provider_bytes, u.bytes as ledger_bytes,
    $2::bigint - u.bytes as gap_bytes, null as correction
  from pgfresh.sources as s
  cross join lateral (select coalesce($3::timestamptz, pgfresh.clock() - s.quota_window) as since) as c
  cross join lateral (
    select coalesce(sum(data_size_bytes), 0)::bigint as bytes
    from pgfresh.api_data_usage
    where source = s.name and hour > c.since - interval '1 hour'
  ) as u
  where s.name = $1::text`;

/** Adjusts the ledger of a source to the provider's own figure with one signed correction. */
export async function calibrateSource(
  db: Queryable,
  name: string,
  usedBytes: number,
  { since, reason = "the provider's own figure", dryRun = false }: CalibrationOptions = {},
): Promise<Calibration> {
  await showSource(db, name);
  const [row] = await db.query<Calibration>(dryRun ? compare : enter, [
    name,
    usedBytes,
    since,
    ...(dryRun ? [] : [reason]),
  ]);
  return row!;
}
