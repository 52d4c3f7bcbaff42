import { expect, it } from 'vitest';
import { bringRole } from '../../src/cli/roles.ts';
import type { JobContext, JobResult } from '../../src/config/index.ts';
import { Events } from '../../src/events/index.ts';
import { atEnd, createDatabase, openDatabase } from '../harness/database.ts';

it('runs 2: statements of a handler have the time limit of the settings, on connections of their own', async () => {
  const url = await createDatabase();
  const database = openDatabase(url);
  const events = new Events();
  const handler = async ({ db }: JobContext): Promise<JobResult> => {
    const [row] = await db.query<{ statement_timeout: string }>('show statement_timeout');
    return { success: true, message: row!.statement_timeout };
  };
  const settings = { schedulerConcurrency: 1, drainTimeout: 1_000, statementTimeout: 600_000 };
  const config = { settings, jobs: [{ name: 'asks', handler }] };
  const context = { database, url, listenUrl: url, events, config } as unknown as Parameters<typeof bringRole>[1];
  const { service } = bringRole('scheduler', context);
  atEnd(() => service!.stop());
  await database.query(
    `insert into pgfresh.scheduled_jobs (name, kind, function_name, schedule) values ('asks', 'handler', 'asks', '0 0 1 1 *')`,
  );
  const ended = Promise.withResolvers<string>();
  events.on('job.ended', ({ job, message }) => job === 'asks' && ended.resolve(message));
  await service!.start();
  await database.query(`select pgfresh.trigger_scheduled_job('asks')`);
  expect(await ended.promise).toBe('10min');
});
