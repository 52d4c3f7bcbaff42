import { defineJob, withLease } from 'pgfresh';

const name = 'refresh_opening_signals';
const waits = { every: ['10m', '15m'], afterFailure: ['20m', '40m'] } as const;

/**
 * Which shares have left their opening price, of all quotes that are known. Under a lease, because it can also be
 * started elsewhere, by a program of yours that takes the same one.
 */
export const refreshOpeningSignals = defineJob({
  name,
  description: 'Which shares have left their opening price.',
  ...waits,
  handler: async ({ db, signal }) => {
    // The scheduler has decided that it is due.
    const run = await withLease(name, { db, signal, manual: true, ...waits }, async ({ token }) => {
      const [row] = await db.query<{ changed: number }>('select refresh_opening_signals($1::bigint) as changed', [
        token,
      ]);
      return row!.changed;
    });
    if ('skipped' in run) return { success: run.reason !== 'schedule_read_error', message: `Skipped: ${run.reason}.` };
    return { success: true, message: `${run.result} signals are new or have changed.` };
  },
});
