import type { Queryable } from '../database/index.ts';
import type { Events } from '../events/index.ts';

/** Stores every warning of this process in the database, until the returned function is called. */
export function recordWarnings(events: Events, db: Queryable): () => void {
  return events.on('warning', ({ code, subject, message, next, recorded }) => {
    if (recorded) return;
    // The warning may be about the database itself; it was still logged and counted.
    void db
      .query('select pgfresh_engine.warn($1::text, $2::text, $3::text, $4::text)', [code, subject ?? '', message, next])
      .catch(() => {});
  });
}
