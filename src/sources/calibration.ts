import type { Queryable } from '../database/index.ts';
import { showSource } from './health.ts';

/** What the provider says was used, beside what the ledger says. */
export interface Calibration {
  readonly source: string;
  readonly since: string;
  readonly provider_bytes: number;
  readonly ledger_bytes: number;
  readonly gap_bytes: number;
  /** The number of the signed entry; null where there is no gap, or nothing was written. */
  readonly correction: number | null;
}

interface CalibrationOptions {
  /** When the provider began to count; the window of the quota if it is left out. */
  readonly since?: Date | undefined;
  readonly reason?: string | undefined;
  readonly dryRun?: boolean | undefined;
}

/** Brings the ledger of a source in line with the provider's own figure, by one signed entry. */
export async function calibrateSource(
  db: Queryable,
  name: string,
  usedBytes: number,
  { since, reason = "the provider's own figure", dryRun = false }: CalibrationOptions = {},
): Promise<Calibration> {
  await showSource(db, name);
  const calibrate = `select pgfresh.calibrate_source($1::text, $2::bigint, $3::timestamptz, $4::text, $5::boolean) as calibration`;
  const [row] = await db.query<{ calibration: Calibration }>(calibrate, [name, usedBytes, since, reason, dryRun]);
  return row!.calibration;
}
