import type { Fresh } from 'pgfresh/client';
import { describe, expect, it } from 'vitest';
import { conditionOf } from '../../../examples/market/board/condition.ts';
import { confirmationOf } from '../../../examples/market/board/lifetime.ts';
import { bytes, countdown, duration, percent, price, signed } from '../../../examples/market/board/format.ts';
import { searchSymbols } from '../../../examples/market/board/symbol-search.ts';

describe('a pair looks to a person', () => {
  const row = { price: 1 };
  const error = { code: 'PGF_LIVE_REFRESH_FAILED', message: 'The last refresh failed.', next: '' };
  const fresh: Fresh<unknown> = {
    data: row,
    rows: [row],
    status: 'ready',
    state: 'fresh',
    activity: 'idle',
    reason: null,
    words: '',
    until: null,
    fetchedAt: new Date(),
    staleAt: new Date(),
    sourceAt: null,
    version: '1',
    error: null,
  };
  const nothing = { data: undefined, rows: [], fetchedAt: null, staleAt: null } as const;
  const cases: [string, string, Partial<Fresh<unknown>>][] = [
    ['fresh', 'fresh', {}],
    ['fresh', 'fresh', { activity: 'refreshing' }],
    ['stale', 'resting', { state: 'stale' }],
    // Being refreshed makes nothing fresh.
    ['stale', 'resting', { state: 'stale', activity: 'refreshing' }],
    ['stale', 'resting', { state: 'stale', activity: 'waiting', reason: 'rate' }],
    ['older', 'resting', { state: 'older_source' }],
    ['failing', 'resting', { state: 'stale', error }],
    // What failed was a refresh before its time.
    ['fresh', 'fresh', { error }],
    ['failing', 'failing', { state: 'refused', error }],
    ['failing', 'failing', { ...nothing, status: 'error', state: 'missing', error }],
    ['resting', 'resting', { state: 'stale', activity: 'waiting', reason: 'gate' }],
    ['missing', 'missing', { ...nothing, status: 'loading', state: 'loading' }],
    ['missing', 'missing', { ...nothing, status: 'loading', state: 'missing', activity: 'waiting', reason: 'queued' }],
    ['empty', 'empty', { ...nothing, status: 'empty', state: 'empty' }],
    ['gone', 'gone', { state: 'empty' }],
  ];
  it.each(cases)('%s, and %s where its exchange is closed, when it is %o', (open, closed, change) => {
    expect(conditionOf({ ...fresh, ...change })).toBe(open);
    expect(conditionOf({ ...fresh, ...change }, true)).toBe(closed);
  });
});

it('truth 2: what the source confirmed is shown by the time of that, and nothing else is', () => {
  const at = (second: number) => new Date(second * 1_000);
  const pair = { state: 'fresh', fetchedAt: at(0), staleAt: at(160) } as const;
  expect(confirmationOf(pair, 60_000)).toEqual(at(100));
  expect(confirmationOf({ ...pair, staleAt: at(60) }, 60_000)).toBeUndefined();
  expect(confirmationOf({ ...pair, state: 'stale' }, 60_000)).toBeUndefined();
  expect(confirmationOf({ ...pair, staleAt: null }, 60_000)).toBeUndefined();
  expect(confirmationOf(pair, undefined)).toBeUndefined();
});

describe('the search', () => {
  const listing = {
    symbols: [
      { symbol: 'AMETA', exchange: 'XNYS', name: null },
      { symbol: 'META.X', exchange: 'XTOK', name: 'Meta Works' },
      { symbol: 'META', exchange: 'XNAS', name: 'Other' },
      { symbol: 'Z', exchange: 'XNYS', name: 'The Metal Company' },
      { symbol: 'Y', exchange: 'XNYS', name: 'Plain' },
    ],
    exchanges: [
      { exchange: 'XNYS', name: 'New York', open: false, opens_at: null },
      { exchange: 'XTOK', name: 'Tokens, day and night', open: true, opens_at: null },
    ],
  };
  const found = (text: string) => searchSymbols(listing, text).map(({ symbol }) => symbol);

  it('has the ticker first, then those that begin so, companies, and tickers that contain it', () => {
    expect(found(' meta ')).toEqual(['META', 'META.X', 'Z', 'AMETA']);
  });

  it('finds exchanges too, says whether they are open, and finds nothing for nothing', () => {
    expect(found('york')).toEqual(['AMETA', 'Z', 'Y']);
    expect(searchSymbols(listing, 'tokens')).toEqual([
      expect.objectContaining({ symbol: 'META.X', exchange: 'Tokens, day and night', open: true }),
    ]);
    // An exchange that is not listed is called by its code.
    expect(searchSymbols(listing, 'other')[0]).toMatchObject({ exchange: 'XNAS', open: false });
    expect([...found(''), ...found('  '), ...found('null'), ...found('nobody')]).toEqual([]);
  });
});

it('numbers are written as people read them', () => {
  expect([0, 999, 1_000, 267_400, 19e9, 3e15].map(bytes)).toEqual([
    '0 B',
    '999 B',
    '1.0 KB',
    '267 KB',
    '19.0 GB',
    '3000 TB',
  ]);
  expect([-5, 59_499, 60_000, 3_600_000, 172_800_000].map(duration)).toEqual(['0 s', '59 s', '1 min', '1 h', '2 d']);
  expect([247_000, 246_001, -1].map(countdown)).toEqual(['4:07', '4:07', '0:00']);
  expect([price(187.2, 'USD'), price(3_205, 'JPY')]).toEqual(['$187.20', '¥3,205']);
  expect([0.42, -1.1, 0].map((value) => signed(value, (size) => percent(size / 100, 2)))).toEqual([
    '+0.42 %',
    '−1.10 %',
    '+0.00 %',
  ]);
});
