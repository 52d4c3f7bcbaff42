import type { Queryable } from '../database/index.ts';
import { showSource, type SourceHealth } from './health.ts';

/** Stops new calls to a source for a time, or until `resumeSource`. Running calls continue. */
export async function pauseSource(
  db: Queryable,
  name: string,
  { ms, reason = 'paused by hand' }: { ms?: number | undefined; reason?: string | undefined } = {},
): Promise<SourceHealth> {
  await showSource(db, name);
  const until = `coalesce(pgfresh.clock() + make_interval(secs => $2::float8 / 1000), 'infinity')`;
  await db.query(`select pgfresh.pause_source($1::text, ${until}, $3::text)`, [name, ms, reason]);
  return showSource(db, name);
}

/** Resumes a source at once, whatever paused it, and resets its breaker. */
export async function resumeSource(db: Queryable, name: string): Promise<SourceHealth> {
  await showSource(db, name);
  await db.query('select pgfresh.resume_source($1::text)', [name]);
  return showSource(db, name);
}

/** Stops new calls because the provider asked for it, for the time that it gave or a default. */
export async function holdSource(
  db: Queryable,
  sourceId: number,
  ms: number | undefined,
  reason: string,
): Promise<void> {
  const until = 'pgfresh.clock() + make_interval(secs => $2::float8 / 1000)';
  await db.query(`select pgfresh_engine.hold_source($1::int, ${until}, $3::text)`, [sourceId, ms, reason]);
}

/**
 * Takes one more call than a job's first, for instance for a redirect: from those reserved by the claim of `job`, or
 * from the rate limit. False if none is available now.
 */
export async function takeCall(db: Queryable, sourceId: number, apiKey: number | null, job?: number): Promise<boolean> {
  const take = 'select pgfresh_engine.take_call($1::int, $2::smallint, $3::bigint) is not null as taken';
  const [row] = await db.query<{ taken: boolean }>(take, [sourceId, apiKey, job]);
  return row!.taken;
}
