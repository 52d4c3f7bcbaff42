import { expect, it, onTestFinished } from 'vitest';
import { resolveConfig, type JobContext, type JobResult } from '../../src/config/index.ts';
import { Events } from '../../src/events/index.ts';
import { Runtime } from '../../src/runtime/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';

it('runs 2: statements of a handler have the time limit of the settings, on connections of their own', async () => {
  const databaseUrl = await createDatabase();
  const handler = async ({ db }: JobContext): Promise<JobResult> => {
    const [row] = await db.query<{ statement_timeout: string }>('show statement_timeout');
    return { success: true, message: row!.statement_timeout };
  };
  const jobs = [{ name: 'asks', schedule: '0 0 1 1 *', handler }];
  const config = resolveConfig({ config: { databaseUrl, statementTimeout: '10m', jobs } });
  const events = new Events();
  const runtime = new Runtime({ config, roles: ['scheduler'], events, listen: false });
  onTestFinished(() => runtime.stop());
  const ended = Promise.withResolvers<string>();
  events.on('job.ended', ({ job, message }) => job === 'asks' && ended.resolve(message));
  await runtime.start();
  await openDatabase(databaseUrl).query(`select pgfresh.trigger_scheduled_job('asks')`);
  expect(await ended.promise).toBe('10min');
});
