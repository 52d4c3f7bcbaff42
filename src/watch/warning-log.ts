import type { Queryable } from '../database/index.ts';
import type { Events } from '../events/index.ts';

/** Keeps every warning of this process as a grouped row, until the returned function is called. */
export function recordWarnings(events: Events, db: Queryable): () => void {
  return events.on('warning', ({ code, subject, message, next, recorded }) => {
    if (recorded) return;
    // The database may be what the warning is about; it was logged and counted then all the same.
    void db
      .query('select pgfresh_engine.warn($1::text, $2::text, $3::text, $4::text)', [code, subject ?? '', message, next])
      .catch(() => {});
  });
}
