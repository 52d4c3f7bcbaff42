import { expect, test } from 'vitest';
import { freezeClock } from '../../harness/clock.ts';
import { seededRandom } from '../../harness/random.ts';
import { openSession } from '../../harness/session.ts';
import { openMarket } from './scene.ts';

const { url, db } = await openMarket();
const clock = await freezeClock(db);
// Whoever asks may live anywhere; here it is fourteen hours ahead of UTC.
const session = await openSession(url);
await session.query(`set time zone 'Pacific/Kiritimati'`);

async function ask(symbol: string): Promise<{ open: boolean; opensAt: Date | null }> {
  const [row] = await session.query<{ open: boolean; opensAt: Date | null }>(
    `select is_exchange_open($1::text, 'quote') as open, exchange_opens_at($1::text, 'quote') as "opensAt"`,
    [symbol],
  );
  return row!;
}

// Of each exchange: a time, whether it is open then, and when it opens next if it is not. All in UTC.
test.each<[exchange: string, symbol: string, what: string, at: string, opensAt?: string]>([
  ['New York', 'IBM', 'before the bell', '2026-11-16T14:29:59.999Z', '2026-11-16T14:30:00Z'],
  ['New York', 'IBM', 'at the bell', '2026-11-16T14:30:00Z'],
  ['New York', 'IBM', 'the last moment', '2026-11-16T20:59:59.999Z'],
  ['New York', 'IBM', 'the end', '2026-11-16T21:00:00Z', '2026-11-17T14:30:00Z'],
  ['New York', 'IBM', 'Friday evening', '2026-11-20T22:00:00Z', '2026-11-23T14:30:00Z'],
  ['New York', 'IBM', 'Sunday', '2026-11-22T15:00:00Z', '2026-11-23T14:30:00Z'],
  // In the evening of New York it is already tomorrow in UTC.
  ['New York', 'IBM', 'Thursday night, which is Friday in UTC', '2026-11-20T03:00:00Z', '2026-11-20T14:30:00Z'],
  ['New York', 'IBM', 'the Friday before summer time', '2026-03-06T14:30:00Z'],
  ['New York', 'IBM', 'the weekend of summer time', '2026-03-07T15:00:00Z', '2026-03-09T13:30:00Z'],
  ['New York', 'IBM', 'the Monday after', '2026-03-09T13:29:00Z', '2026-03-09T13:30:00Z'],
  ['New York', 'IBM', 'in summer', '2026-07-01T13:30:00Z'],
  ['New York', 'IBM', 'the weekend when summer time ends', '2026-10-31T15:00:00Z', '2026-11-02T14:30:00Z'],
  ['New York', 'IBM', 'the last Friday of summer time', '2026-10-30T20:00:00Z', '2026-11-02T14:30:00Z'],
  ['New York', 'IBM', 'Thanksgiving', '2026-11-26T16:00:00Z', '2026-11-27T14:30:00Z'],
  ['New York', 'IBM', 'the half day after it', '2026-11-27T17:59:59Z'],
  ['New York', 'IBM', 'the end of the half day', '2026-11-27T18:00:00Z', '2026-11-30T14:30:00Z'],
  ['New York', 'IBM', 'Independence Day on a Saturday', '2026-07-03T15:00:00Z', '2026-07-06T13:30:00Z'],
  ['New York', 'IBM', 'Independence Day on a Sunday', '2027-07-05T15:00:00Z', '2027-07-06T13:30:00Z'],
  ['New York', 'IBM', 'Good Friday', '2026-04-03T15:00:00Z', '2026-04-06T13:30:00Z'],
  ['New York', 'IBM', 'New Year after a Friday that is none', '2027-12-31T15:00:00Z'],
  ['Nasdaq', 'AAPL', 'as in New York', '2026-11-26T16:00:00Z', '2026-11-27T14:30:00Z'],
  ['London', 'HSBA.L', 'in winter', '2026-11-16T08:00:00Z'],
  ['London', 'HSBA.L', 'before it in winter', '2026-11-16T07:59:59Z', '2026-11-16T08:00:00Z'],
  ['London', 'HSBA.L', 'in summer', '2026-07-01T07:00:00Z'],
  ['London', 'HSBA.L', 'the end in summer', '2026-07-01T15:30:00Z', '2026-07-02T07:00:00Z'],
  ['London', 'HSBA.L', 'over the weekend of summer time', '2026-03-28T12:00:00Z', '2026-03-30T07:00:00Z'],
  [
    'London',
    'HSBA.L',
    'three weeks earlier, when only New York has it',
    '2026-03-10T07:30:00Z',
    '2026-03-10T08:00:00Z',
  ],
  ['London', 'HSBA.L', 'Easter', '2026-04-02T16:00:00Z', '2026-04-07T07:00:00Z'],
  ['London', 'HSBA.L', 'Christmas Eve', '2026-12-24T12:29:59Z'],
  ['London', 'HSBA.L', 'Christmas', '2026-12-24T12:30:00Z', '2026-12-29T08:00:00Z'],
  ['London', 'HSBA.L', "New Year's Eve", '2026-12-31T12:30:00Z', '2027-01-04T08:00:00Z'],
  ['London', 'HSBA.L', 'Christmas on a weekend', '2027-12-27T10:00:00Z', '2027-12-29T08:00:00Z'],
  ['Tokyo', '7203.T', 'in the morning', '2026-11-16T00:00:00Z'],
  ['Tokyo', '7203.T', 'on Monday, which is still Sunday in UTC', '2026-11-15T23:59:00Z', '2026-11-16T00:00:00Z'],
  ['Tokyo', '7203.T', 'the lunch break', '2026-11-16T02:30:00Z', '2026-11-16T03:30:00Z'],
  ['Tokyo', '7203.T', 'after lunch', '2026-11-16T03:30:00Z'],
  ['Tokyo', '7203.T', 'the last half hour, new since 2024', '2026-11-16T06:29:59Z'],
  ['Tokyo', '7203.T', 'the end', '2026-11-16T06:30:00Z', '2026-11-17T00:00:00Z'],
  ['Tokyo', '7203.T', 'Golden Week', '2026-05-01T07:00:00Z', '2026-05-07T00:00:00Z'],
  ['Tokyo', '7203.T', 'Silver Week', '2026-09-18T07:00:00Z', '2026-09-24T00:00:00Z'],
  ['Tokyo', '7203.T', 'the turn of the year', '2026-12-30T07:00:00Z', '2027-01-04T00:00:00Z'],
  ['Tokyo', '7203.T', 'an equinox on a Sunday', '2027-03-22T01:00:00Z', '2027-03-23T00:00:00Z'],
  ['the tokens', 'AAPL.X', 'on a Sunday night', '2026-11-15T03:00:00Z'],
  ['the tokens', 'AAPL.X', 'at midnight', '2026-11-16T00:00:00Z'],
  ['the tokens', 'AAPL.X', 'a moment before it', '2026-11-15T23:59:59.999999Z'],
])('%s (%s), %s, at %s', async (_exchange, symbol, _what, at, opensAt) => {
  await clock.set(at);
  const { open, opensAt: next } = await ask(symbol);
  expect([open, next!.toISOString()]).toEqual([opensAt === undefined, new Date(opensAt ?? at).toISOString()]);
});

test('an exchange is open at the time that was told, and not a moment before', async () => {
  const random = seededRandom(11);
  const from = Date.parse('2026-01-01');
  const span = Date.parse('2027-12-20') - from;
  for (let round = 0; round < 150; round++) {
    const at = new Date(from + Math.floor(random() * span));
    for (const symbol of ['IBM', 'HSBA.L', '7203.T']) {
      await clock.set(at);
      const { open, opensAt } = await ask(symbol);
      if (open) continue;
      expect(opensAt!.getTime()).toBeGreaterThan(at.getTime());
      await clock.set(opensAt!);
      expect(await ask(symbol)).toEqual({ open: true, opensAt });
      await clock.set(new Date(opensAt!.getTime() - 1));
      expect(await ask(symbol)).toEqual({ open: false, opensAt });
    }
  }
});

test('a year has as many days and hours of trade as the exchanges say', async () => {
  const rows = await db.query(`
    select e.exchange, d.hours, count(*)::int as days
    from exchanges as e
    cross join generate_series(date '2026-01-01', date '2026-12-31', interval '1 day') as g(day)
    cross join lateral (
      select sum(extract(epoch from x.closes_at - x.opens_at))::int / 3600.0::float as hours from exchange_sessions(e.exchange, g.day::date, g.day::date) as x
    ) as d
    where d.hours is not null
    group by 1, 2 order by 1, 2`);
  expect(rows.map((row) => Object.values(row).join(' '))).toEqual([
    'XLON 4.5 2',
    'XLON 8.5 251',
    'XNAS 3.5 2',
    'XNAS 6.5 249',
    'XNYS 3.5 2',
    'XNYS 6.5 249',
    'XTKS 5.5 242',
    'XTOK 24 365',
  ]);
});

test('a symbol without an exchange holds nothing back', async () => {
  expect(await ask('NOPE')).toEqual({ open: true, opensAt: null });
});
