import type { Queryable } from '../database/index.ts';
import { showSource, type SourceHealth } from './health.ts';

/** Calls a source no more, for so long or until `resumeSource`. What runs goes on. */
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

/** Lets a source be called again at once, whatever paused it; its breaker starts over. */
export async function resumeSource(db: Queryable, name: string): Promise<SourceHealth> {
  await showSource(db, name);
  await db.query('select pgfresh.resume_source($1::text)', [name]);
  return showSource(db, name);
}

/** The provider asked to be left alone for so long, or did not say for how long: the source is not called meanwhile. */
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
 * Asks for one more call than the first of a job, for instance for a redirect: of those that came with the claim of `job`,
 * or of the rate. False if it may not be made now.
 */
export async function takeCall(db: Queryable, sourceId: number, apiKey: number | null, job?: number): Promise<boolean> {
  const take = 'select pgfresh_engine.take_call($1::int, $2::smallint, $3::bigint) is not null as taken';
  const [row] = await db.query<{ taken: boolean }>(take, [sourceId, apiKey, job]);
  return row!.taken;
}
