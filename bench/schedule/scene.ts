import { Database, migrate, readSqlFiles } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { sweepJob } from '../../src/planner/index.ts';
import { Scheduler } from '../../src/schedule/index.ts';
import { sleep } from '../clock.ts';
import type { Scope } from '../scope.ts';
import { type BenchServer, connect } from '../server.ts';

export interface Scene {
  readonly concurrency: number;
  /** Makes this many of the jobs due every minute. */
  makeDue(count: number): Promise<void>;
  /** Makes a minute begin in a moment; returns when, by the machine's clock. */
  nextSlot(): Promise<number>;
  /** Resolves when this many functions have begun, with their start times. */
  begun(count: number): Promise<number[]>;
  /** Statement time of sessions so far, without this query's own. */
  activeMs(): Promise<number>;
}

const concurrency = 10;
const leadMs = 2_000;

/** A database with so many jobs that are not due for months, and a scheduler with the usual settings. */
export async function buildScene(
  server: BenchServer,
  scope: Scope,
  { jobs, ownJobs }: { readonly jobs: number; readonly ownJobs: boolean },
  progress: (line: string) => void,
): Promise<Scene> {
  const url = await server.createDatabase(scope);
  const events = new Events();
  const db = new Database({ url, events, applicationName: 'pgfresh bench', statementTimeoutMs: 600_000 });
  scope.defer(() => db.close());
  await migrate(db, { files: await readSqlFiles(), events });
  // In another database, so that observing costs this one nothing.
  const watcher = await connect(await server.createDatabase(scope), scope);
  await db.query(`
    create table begun (at timestamptz);
    create function bench_job() returns jsonb language sql as $$
      insert into begun values (clock_timestamp()) returning '{"success": true, "message": "done"}'::jsonb
    $$`);
  progress(`registering ${jobs} jobs`);
  await db.query(
    `insert into pgfresh.scheduled_jobs (name, function_name, schedule)
     select 'job-' || n, 'bench_job', format('%s 3 1 %s *', n % 60, 1 + (extract(month from now())::int + 5 + n % 3) % 12) from generate_series(1, $1::int) as n`,
    [jobs],
  );
  events.on('scheduler.failed', ({ step, problem }) => progress(`${step}: ${problem}`));
  const own = new Database({ url, events, applicationName: 'pgfresh scheduler' });
  scope.defer(() => own.close());
  const scheduler = new Scheduler({
    db: own,
    url,
    listenUrl: url,
    events,
    handlers: new Map(),
    ownJobs: ownJobs ? { sweep: sweepJob({ db: own, events }) } : undefined,
    concurrency,
    drainMs: 5_000,
  });
  scope.defer(() => scheduler.stop());
  await scheduler.start();
  const value = async <T>(text: string, values: readonly unknown[] = []): Promise<T> =>
    Object.values((await db.query<Record<string, T>>(text, values))[0]!)[0]!;
  const looked = async (): Promise<void> => {
    while (await value(`select exists (select from pgfresh_engine.job_cursor where due_at = '-infinity')`))
      await sleep(50);
  };
  await looked();
  await db.query('vacuum (analyze)');
  return {
    concurrency,
    async makeDue(count) {
      await db.query(`update pgfresh.scheduled_jobs set schedule = '* * * * *' where id <= $1::int`, [count]);
      await looked();
    },
    async nextSlot() {
      await db.query('truncate begun');
      const [row] = await db.query<{ slot: Date; at: Date }>(
        `select date_trunc('minute', now.now) + interval '1 minute' as slot, clock_timestamp() + make_interval(secs => $1::float8 / 1000) as at from (select pgfresh.clock() as now) as now`,
        [leadMs],
      );
      const { slot, at } = row!;
      await db.query(
        `create or replace function pgfresh.clock() returns timestamptz language sql volatile parallel safe set search_path = pg_catalog, pg_temp
         as $$ select pg_catalog.clock_timestamp() + interval '${slot.getTime() - at.getTime()} milliseconds' $$`,
      );
      await db.query(`select pg_notify('pgfresh_schedule', '')`);
      return at.getTime();
    },
    async begun(count) {
      while ((await value<number>('select count(*)::int from begun')) < count) await sleep(100);
      const rows = await db.query<{ at: number }>(`select extract(epoch from at)::float8 * 1000 as at from begun`);
      // Ends are recorded after the functions.
      while (await value(`select exists (select from pgfresh.scheduled_job_runs where completed_at is null)`))
        await sleep(20);
      return rows.map(({ at }) => at);
    },
    async activeMs() {
      const { rows } = await watcher.query<{ ms: number }>(
        `select active_time as ms from pg_stat_database where datname = $1::text`,
        [new URL(url).pathname.slice(1)],
      );
      return rows[0]!.ms;
    },
  };
}
