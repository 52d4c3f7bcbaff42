import type { JobHandler } from '../config/index.ts';

/** What pgfresh itself does at set times. `pgfresh.sync_own_jobs` writes the jobs that name these. */
export const ownHandlers: ReadonlyMap<string, JobHandler> = new Map<string, JobHandler>([
  [
    'pgfresh.refresh',
    async ({ slot, params, db }) => {
      const open = `select pgfresh.open_refresh_cycle($1::text, coalesce($2::timestamptz, date_trunc('milliseconds', pgfresh.clock()))) as opened`;
      // A slot has one round, however often this runs.
      const [row] = await db.query<{ opened: boolean }>(open, [params['data_type'], slot]);
      return { success: true, message: row!.opened ? 'a round over all keys is open' : 'the round was open already' };
    },
  ],
  [
    'pgfresh.maintain',
    async ({ db }) => {
      const [row] = await db.query<{ details: { busy: number } }>(
        'select pgfresh.maintain_queue_partitions() as details',
      );
      const { details } = row!;
      return {
        success: true,
        message: details.busy > 0 ? 'a part of the history is in use and has its turn next time' : 'done',
        details,
      };
    },
  ],
]);
