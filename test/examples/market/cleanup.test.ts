import { readFile } from 'node:fs/promises';
import { beforeAll, expect, it } from 'vitest';
import type { Database } from '../../../src/database/index.ts';
import { nextSlots, parseCron } from '../../../src/schedule/index.ts';
import { createDatabase, openDatabase } from '../../harness/database.ts';

let db: Database;
beforeAll(async () => {
  db = openDatabase(await createDatabase());
  const schema = await readFile('examples/market/schema.sql', 'utf8');
  await db.query(schema);
  // As every start of the example does.
  await db.query(schema);
});

const count = async (table: string): Promise<number> => {
  const [row] = await db.query<{ count: number }>(`select count(*)::int as count from ${table}`);
  return row!.count;
};

it('cleans up every night at three in New York, and removes what is gone and old, and nothing else', async () => {
  const [job] = await db.query<{ id: number; schedule: string; timezone: string; params: Record<string, unknown> }>(
    `select id, schedule, timezone, params from pgfresh.scheduled_jobs where name = 'daily_cleanup'`,
  );
  const slots = nextSlots(parseCron(job!.schedule), job!.timezone, new Date('2026-03-07T00:00:00Z'), 2);
  expect(slots.map((slot) => slot.toISOString())).toEqual(['2026-03-07T08:00:00.000Z', '2026-03-08T07:00:00.000Z']);

  await db.query(`
    insert into profiles select s.symbol, 'Company', s.exchange, 'USD', 'US', 'Any', 'Any', null, 1, '2000-01-01', null, 'Made up', true, now(), now() - a.age
      from (values ('AAPL', interval '60 days'), ('MSFT', interval '60 days'), ('IBM', interval '1 day')) as a(symbol, age) join symbols as s using (symbol);
    insert into quotes select symbol, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 'USD', now(), now() from profiles;
    update symbols set active = false where symbol in ('MSFT', 'IBM');
    insert into opening_signals (symbol, day, signal, open, price, move_percent, updated_at)
      select symbol, current_date, 'rising', 100, 102, 2, fetched_at from profiles where symbol in ('AAPL', 'IBM');
    insert into exchange_holidays values ('XNYS', '2019-01-01', 'long ago')`);
  const before = await count('exchange_holidays');
  const run = async () => {
    const call = 'select pgfresh_engine.call_job_function($1::int, $2::jsonb) as result';
    const [row] = await db.query<{ result: unknown }>(call, [job!.id, JSON.stringify(job!.params)]);
    return row!.result;
  };
  expect(await run()).toEqual({
    success: true,
    message: 'Removed 1 symbols, 1 signals and 1 holidays',
    details: { symbols: ['MSFT'], signals: 1, holidays: 1 },
  });
  expect([await count('profiles'), await count('quotes'), await count('exchange_holidays')]).toEqual([
    2,
    2,
    before - 1,
  ]);
  expect(await run()).toMatchObject({ message: 'Removed 0 symbols, 0 signals and 0 holidays' });
});
