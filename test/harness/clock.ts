import type { Queryable } from '../../src/database/index.ts';

/** Freezes `pgfresh.clock()` of a test database where the test sets it. */
export async function freezeClock(database: Queryable, start = '2026-01-05T12:00:00Z') {
  await database.query('create table if not exists public.test_clock (now timestamptz not null)');
  // Users' functions read the clock as this role.
  await database.query('grant select on public.test_clock to pgfresh_evaluator');
  await database.query('truncate public.test_clock');
  await database.query('insert into public.test_clock values ($1::timestamptz)', [start]);
  await database.query(
    `create or replace function pgfresh.clock() returns timestamptz language sql volatile as 'select now from public.test_clock'`,
  );
  return {
    set: (time: string | Date) => database.query('update public.test_clock set now = $1::timestamptz', [time]),
    advance: (interval: string) => database.query('update public.test_clock set now = now + $1::interval', [interval]),
  };
}

/** Lets `pgfresh.clock()` of a test database run, and jump ahead on request. */
export async function shiftClock(database: Queryable) {
  await database.query('create table public.test_clock (ahead interval not null)');
  await database.query('grant select on public.test_clock to public');
  await database.query(`insert into public.test_clock values ('0')`);
  await database.query(
    `create or replace function pgfresh.clock() returns timestamptz language sql volatile as 'select clock_timestamp() + ahead from public.test_clock'`,
  );
  return {
    /** In milliseconds. */
    now: async () => {
      const [row] = await database.query<{ now: Date }>('select pgfresh.clock() as now');
      return row!.now.getTime();
    },
    advance: (interval: string) =>
      database.query('update public.test_clock set ahead = ahead + $1::interval', [interval]),
  };
}
