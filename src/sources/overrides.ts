import type { Queryable } from '../database/index.ts';
import { showSource, type SourceHealth } from './health.ts';

/** Overrides one setting of a source, by column, over the configuration; null means no limit. */
export async function overrideSource(
  db: Queryable,
  name: string,
  { column, value, reason }: { column: string; value: string | null; reason: string },
): Promise<SourceHealth> {
  await showSource(db, name);
  await db.query('select pgfresh_engine.override_source($1::text, $2::text, $3::text, $4::text)', [
    name,
    column,
    value,
    reason,
  ]);
  return showSource(db, name);
}

/** Resets one setting of a source, or all, to the configuration. Returns how many were overridden. */
export async function clearOverride(db: Queryable, name: string, column?: string): Promise<number> {
  await showSource(db, name);
  const clear = 'select pgfresh_engine.clear_source_override($1::text, $2::text) as count';
  const [row] = await db.query<{ count: number }>(clear, [name, column]);
  return row!.count;
}
