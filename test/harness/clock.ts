import type { Queryable } from '../../src/database/index.ts';

/** Makes `pgfresh.clock()` of a test database stand still where the test puts it. */
export async function freezeClock(database: Queryable, start = '2026-01-05T12:00:00Z') {
  await database.query('create table if not exists public.test_clock (now timestamptz not null)');
  // Users' functions ask what time it is as this role.
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
