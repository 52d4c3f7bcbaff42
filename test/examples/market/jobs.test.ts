import { readFile } from 'node:fs/promises';
import { beforeAll, expect, it } from 'vitest';
import config from '../../../examples/market/pgfresh.config.ts';
import type { Database } from '../../../src/database/index.ts';
import type { JobResult } from '../../../src/index.ts';
import { freezeClock } from '../../harness/clock.ts';
import { openDatabase } from '../../harness/database.ts';
import { grantedLogin, openMarket } from './scene.ts';

let db: Database;
let scheduler: Database;
let clock: Awaited<ReturnType<typeof freezeClock>>;

beforeAll(async () => {
  const market = await openMarket();
  db = market.db;
  // A Tuesday morning in New York; in Tokyo it is Wednesday already.
  clock = await freezeClock(db, '2026-11-17T15:30:00Z');
  await db.query('grant select on public.test_clock to public');
  const wants = 'scheduler=$,table=opening_signals,read=quotes,read=symbols,read=exchanges';
  scheduler = openDatabase((await grantedLogin(market, wants)).url);
  for (const [symbol, exchange, price] of [
    ['AAPL', 'XNAS', 102],
    ['MSFT', 'XNAS', 96.5],
    ['IBM', 'XNYS', 100.9],
    ['7203.T', 'XTKS', 99],
  ] as const) {
    await db.query(
      `insert into profiles values ($1::text, 'Company', $2::text, 'USD', 'US', 'Technology', 'Software', null, 1, '2000-01-01', null, 'None', true, pgfresh.clock(), pgfresh.clock())`,
      [symbol, exchange],
    );
    await db.query(
      `insert into quotes values ($1::text, $2::numeric, 0, 0, 100, 200, 50, 100, 1, 1, 1, 'USD', pgfresh.clock(), pgfresh.clock())`,
      [symbol, price],
    );
  }
});

async function refresh(): Promise<JobResult> {
  const job = config.jobs!.find(({ name }) => name === 'refresh_opening_signals')!;
  return job.handler!({
    job: job.name,
    slot: null,
    attempt: 1,
    signal: new AbortController().signal,
    params: {},
    log: () => {},
    db: scheduler,
  });
}

const signals = () =>
  db.query(
    `select symbol, day::text, signal, move_percent::float8 as move, to_char(first_seen_at at time zone 'UTC', 'HH24:MI') as seen,
       to_char(updated_at at time zone 'UTC', 'HH24:MI') as updated from opening_signals order by symbol, day`,
  );

it('refresh_opening_signals writes who has left the opening price, and keeps when it was seen first', async () => {
  expect(await refresh()).toEqual({ success: true, message: '3 signals are new or have changed.' });
  const first = { day: '2026-11-17', seen: '15:30', updated: '15:30' };
  const [toyota, apple, microsoft] = [
    { symbol: '7203.T', signal: 'falling', move: -1, ...first, day: '2026-11-18' },
    { symbol: 'AAPL', signal: 'rising', move: 2, ...first },
    { symbol: 'MSFT', signal: 'falling', move: -3.5, ...first },
  ];
  expect(await signals()).toEqual([toyota, apple, microsoft]);

  await clock.advance('12 minutes');
  await db.query(`update quotes set price = 104, source_updated_at = pgfresh.clock() where symbol = 'AAPL'`);
  expect(await refresh()).toEqual({ success: true, message: '1 signals are new or have changed.' });
  expect(await signals()).toEqual([toyota, { ...apple, move: 4, updated: '15:42' }, microsoft]);
});

it('leaves a lease that says how it went and when it is due, and does nothing while somebody else has it', async () => {
  const [row] = await db.query(
    `select last_status, locked_by, next_run_at - pgfresh.clock() between interval '0' and interval '15 minutes' as planned
     from pgfresh.refresh_schedule where function_name = 'refresh_opening_signals'`,
  );
  expect(row).toEqual({ last_status: 'success', locked_by: null, planned: true });
  const [held] = await db.query<{ token: number }>(
    `select token from pgfresh.acquire_refresh_lock('refresh_opening_signals', 'somebody else', p_manual => true)`,
  );
  await db.query('delete from opening_signals');
  expect(await refresh()).toEqual({ success: true, message: 'Skipped: locked.' });
  expect(await signals()).toEqual([]);
  // Whoever has it may call the function; who had it once may not.
  await expect(scheduler.query('select refresh_opening_signals($1::bigint)', [held!.token - 1])).rejects.toMatchObject({
    code: 'PGF_LOCK_LOST',
  });
  expect(await signals()).toEqual([]);
  expect(await scheduler.query('select refresh_opening_signals($1::bigint) as count', [held!.token])).toEqual([
    { count: 3 },
  ]);
});

it('docs/guides/market-example.md asks for columns that are there', async () => {
  const page = await readFile('docs/guides/market-example.md', 'utf8');
  const section = page.slice(page.indexOf('## The jobs'), page.indexOf('## The viewers'));
  for (const statement of /```sql\n(.*?)```/s.exec(section)![1]!.split(';\n').filter(Boolean)) {
    expect(await db.query(statement)).not.toEqual([]);
  }
});
