import { beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { defineDataType } from '../../src/index.ts';
import { Commits, examineFetchers, Refresher } from '../../src/refresh/index.ts';
import { SourceClient } from '../../src/sources/index.ts';
import { blocked } from '../harness/blocked.ts';
import { openSession } from '../harness/session.ts';
import { quoteType, RefreshScene } from './scene.ts';

const common = {
  source: 'market',
  table: 'plain',
  key: 'symbol',
  timestamp: 'fetched_at',
  ttl: '1m',
  empty: { status: [204, 404] },
} as const;

const plain = defineDataType({
  ...common,
  name: 'plain',
  schema: z.object({ symbol: z.string(), price: z.number() }),
  request: (key, { metadata }) => ({ url: `/plain/${key}`, query: { full: String(metadata['full']) } }),
  rows: (answer) => answer,
});

const statement = defineDataType({
  name: 'statement',
  source: 'market',
  table: 'statement',
  key: ['symbol', 'exchange'],
  timestamp: 'fetched_at',
  ttl: '1d',
  write: 'replace',
  sourceTimestamp: 'quoted_at',
  schema: z.object({ at: z.string(), statements: z.array(z.object({ period: z.string(), revenue: z.number() })) }),
  request: (_key, { keyParts: [symbol, exchange] }) => ({ url: `/statement/${exchange}/${symbol}` }),
  rows: ({ at, statements }, { keyParts: [symbol, exchange] }) =>
    statements.map((one) => ({ symbol, exchange, ...one, quoted_at: at })),
});

/** Says of which symbol it is beside its list, which may be empty. */
const listing = defineDataType({
  ...common,
  name: 'listing',
  normalise: 'upper',
  request: (key) => ({ url: `/plain/${key}` }),
  schema: z.object({ symbol: z.string(), prices: z.array(z.number()) }),
  rows: ({ symbol, prices }) => prices.map((price) => ({ symbol, price })),
});

const greater = quoteType({
  name: 'greater',
  sourceTimestamp: undefined,
  write: { mode: 'merge', ifGreater: 'price' },
});
const undated = quoteType({ name: 'undated', sourceTimestamp: undefined });
const child = defineDataType({ ...plain, name: 'child', table: 'child' });

let scene: RefreshScene;
beforeAll(async () => {
  scene = await RefreshScene.open([quoteType(), plain, statement, listing, greater, undated, child]);
});

describe('a refresh', () => {
  it('writes the row, its time and the end of its job in one transaction', async () => {
    scene.quote('AAPL', 101.5);
    const [ended] = await scene.refresh(['AAPL']);
    expect(ended).toMatchObject({ outcome: 'fresh', cost: { calls: 1 } });
    const [row] = await scene.db.query<Record<string, unknown>>(
      `select q.price::text, q.name, q.quoted_at, q.fetched_at > pgfresh.clock() - interval '5 seconds' as recent, h.outcome, h.status, h.bytes, h.xmin = q.xmin as together
       from quote as q, pgfresh_engine.history_succeeded as h where q.symbol = 'AAPL' and h.key = 'AAPL'`,
    );
    expect(row).toMatchObject({ price: '101.5', name: 'nobody', recent: true, outcome: 'fresh', together: true });
    expect(ended!.cost.bytes).toBe(row!['bytes']);
  });

  it('hands the job’s metadata to request', async () => {
    let query = '';
    scene.provider.answers.set('/plain/META', (request, response) => {
      query = request.url!;
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"symbol":"META","price":1}');
    });
    await scene.enqueue('plain', ['META'], { full: 'yes' });
    const [job] = await scene.claim();
    await scene.refresher().fetch(await scene.type('plain'), job!, new AbortController().signal);
    expect(query).toContain('full=yes');
    await scene.db.query(`select pgfresh.cancel_queue_jobs(p_data_type => 'plain')`);
  });

  it('leaves columns that rows leave out, and writes a null where one is said', async () => {
    scene.quote('NULL', 1, '2026-01-05T12:00:00Z', { name: 'somebody' });
    await scene.refresh(['NULL']);
    scene.quote('NULL', 2, '2026-01-05T12:00:01Z');
    await scene.refresh(['NULL']);
    const name = () => scene.value<string | null>(`select name from quote where symbol = 'NULL'`);
    expect(await name()).toBe('somebody');
    scene.quote('NULL', 3, '2026-01-05T12:00:02Z', { name: null });
    await scene.refresh(['NULL']);
    expect(await name()).toBeNull();
  });

  it('of a type without a source timestamp is always fresh', async () => {
    scene.provider.json('/plain/A', { symbol: 'A', price: 1 });
    expect(await scene.outcome('A', 'plain')).toBe('fresh');
    expect(await scene.outcome('A', 'plain')).toBe('fresh');
  });

  it('of a type without a source timestamp replaces a row whose time is still to come', async () => {
    await scene.db.query(`insert into plain values ('AHEAD', 5, now() + interval '1 day')`);
    scene.provider.json('/plain/AHEAD', { symbol: 'AHEAD', price: 1 });
    expect(await scene.outcome('AHEAD', 'plain')).toBe('fresh');
    expect(await scene.value(`select price::float8 from plain where symbol = 'AHEAD'`)).toBe(1);
  });

  it('that finds nothing is empty, by its rows or by a status', async () => {
    scene.provider.answers.set('/plain/NONE', (_request, response) => response.writeHead(404).end());
    scene.provider.answers.set('/plain/VOID', (_request, response) => response.writeHead(204).end());
    scene.provider.json('/statement/X/NONE', { at: '2026-01-05', statements: [] });
    expect(await scene.outcome('NONE', 'plain')).toBe('empty');
    expect(await scene.outcome('VOID', 'plain')).toBe('empty');
    expect(await scene.outcome('NONE|X', 'statement')).toBe('empty');
  });
});

describe('the source timestamp of the registry', () => {
  /** A data type that an INSERT makes of a fetcher whose own data type has none. */
  const add = (name: string, field: string | null) =>
    scene.db.query(
      `insert into pgfresh.data_type_registry (data_type, source, fetcher, table_name, key_columns, timestamp_column, ttl, normalise, source_timestamp_field)
       values ($1::text, 'market', 'undated', 'quote', '{symbol}', 'fetched_at', '1 minute', 'upper', $2::text)`,
      [name, field],
    );

  it('truth 6: decides for a type that SQL has made, whatever its fetcher says', async () => {
    await add('dated', 'quoted_at');
    await add('dateless', null);
    const price = () => scene.value<number>(`select price::float8 from quote where symbol = 'DATED'`);
    scene.quote('DATED', 10, '2026-01-05T12:00:00Z');
    expect(await scene.outcome('DATED', 'dated')).toBe('fresh');
    scene.quote('DATED', 9, '2026-01-05T11:00:00Z');
    expect([await scene.outcome('DATED', 'dated'), await price()]).toEqual(['older_source', 10]);
    scene.quote('DATED', 8, '2099-01-05T11:00:00Z');
    expect([await scene.outcome('DATED', 'dated'), await price()]).toEqual(['sanity', 10]);
    // Without one nothing says that it is old.
    scene.quote('DATED', 7, '2026-01-05T11:00:00Z');
    expect([await scene.outcome('DATED', 'dateless'), await price()]).toEqual(['fresh', 7]);
  });

  it('truth 6: that a type of SQL lacks and its fetcher has is found by check', async () => {
    await scene.db.query(
      `insert into pgfresh.data_type_registry (data_type, source, fetcher, table_name, key_columns, timestamp_column, ttl)
       values ('copied', 'market', 'quote', 'quote', '{symbol}', 'fetched_at', '1 minute')`,
    );
    const findings = await examineFetchers(scene.db, { ...scene.config, file: 'pgfresh.config.ts' });
    expect(findings.find(({ name }) => name === 'data type copied')).toMatchObject({
      state: 'warning',
      detail: expect.stringContaining('quoted_at'),
      next: expect.stringContaining(`set source_timestamp_field = 'quoted_at' where data_type = 'copied'`),
    });
  });
});

describe('an empty list', () => {
  it.each([
    ['of the key', 'EMPTY', 'empty'],
    ['of the key in another spelling', 'empty', 'empty'],
    ['of another key', 'OTHER', 'wrong_key'],
  ])('%s', async (_name, symbol, outcome) => {
    scene.provider.json('/plain/EMPTY', { symbol, prices: [] });
    expect(await scene.outcome('EMPTY', 'listing')).toBe(outcome);
  });
});

describe('sound 12: an answer', () => {
  it.each([
    ['straße', 'straße'],
    ['STRAßE', 'Straße'],
    ['ıİſ', 'ıİſ'],
    ['ΟΔΟΣ', 'ΟΔΟΣ'],
    ['e\u0301ς', 'E\u0301ς'],
  ])('for %j may spell its key %j', async (key, symbol) => {
    const spelled = await scene.value<string>(`select pgfresh_engine.canonical_key($1::text, 'upper')`, [key]);
    scene.provider.json(encodeURI(`/plain/${spelled}`), { symbol, prices: [1] });
    expect(await scene.outcome(key, 'listing')).toBe('fresh');
    expect(await scene.value(`select price::int from plain where symbol = $1::text`, [spelled])).toBe(1);
  });
});

describe('the source timestamp', () => {
  it.each([
    ['newer, same content', 1, '13:00:00', 'fresh', 1],
    ['newer, other content', 2, '14:00:00', 'fresh', 2],
    ['equal, equal content', 2, '14:00:00', 'unchanged', 2],
    ['equal, other content', 3, '14:00:00', 'older_source', 2],
    ['older', 4, '12:59:00', 'older_source', 2],
  ])('%s', async (_name, price, time, outcome, kept) => {
    if (price === 1) {
      scene.quote('TIME', 1, '2026-01-05T12:00:00Z');
      await scene.refresh(['TIME']);
    }
    scene.quote('TIME', price, `2026-01-05T${time}Z`);
    expect(await scene.outcome('TIME')).toBe(outcome);
    expect(await scene.value(`select price::float8 from quote where symbol = 'TIME'`)).toBe(kept);
  });

  it('of a row that somebody else wrote counts too, and a null there does not', async () => {
    await scene.db.query(
      `insert into quote values ('OTHER', 5, null, '2026-01-06', now()), ('BLANK', 5, null, null, now())`,
    );
    scene.quote('OTHER', 6);
    scene.quote('BLANK', 6);
    expect((await scene.refresh(['BLANK', 'OTHER'])).map(({ outcome }) => outcome)).toEqual(['fresh', 'older_source']);
  });
});

describe('an answer of the cache', () => {
  it('does not replace a row that was fetched later, and has its own time', async () => {
    scene.provider.json('/plain/OLD', { symbol: 'OLD', price: 1 });
    const type = await scene.type('plain');
    const signal = new AbortController().signal;
    const endAged = async (seconds: number): Promise<string> => {
      await scene.enqueue('plain', ['OLD']);
      const [job] = await scene.claim(type.id);
      const fetched = await scene.refresher().fetch(type, job!, signal);
      const aged = { ...fetched, fetchedAt: performance.now() - seconds * 1_000 };
      const {
        ended: [ended],
      } = await new Commits(scene.db, scene.queue).end(type, [{ job: job!, fetched: aged }], signal);
      return ended!.outcome;
    };
    const age = () =>
      scene.value<number>(`select extract(epoch from now() - fetched_at)::float8 from plain where symbol = 'OLD'`);
    expect(await endAged(30)).toBe('fresh');
    expect(await age()).toBeGreaterThan(29);
    expect(await endAged(60)).toBe('older_source');
    expect(await age()).toBeLessThan(59);
    expect(await endAged(0)).toBe('fresh');
    expect(await age()).toBeLessThan(29);
  });
});

describe('an answer that was refused', () => {
  it('is not taken from the cache, as a good one is', async () => {
    const type = await scene.type();
    const source = scene.config.sources.find(({ name }) => name === 'market')!;
    const client = new SourceClient({ ...source, cacheEntries: 10 }, { events: scene.events });
    const refresher = new Refresher({ clientOf: () => client, now: () => new Date() });
    const fetch = (as = type) => refresher.fetch(as, { key: 'CACHED', metadata: null }, new AbortController().signal);
    scene.quote('CACHED', -1);
    expect(await fetch()).toMatchObject({ refusal: { outcome: 'sanity' }, cost: { calls: 1 } });
    scene.quote('CACHED', 1);
    expect(await fetch()).toMatchObject({ rows: [{ price: 1 }], fromCache: false });
    const twin = { ...type, name: 'twin' };
    expect(await fetch(twin)).toMatchObject({ rows: [{ price: 1 }], fromCache: true, cost: { calls: 0 } });
    await client.close();
  });

  it('is kept with others of its kind, but not with all of them', async () => {
    const keys = Array.from({ length: 8 }, (_, n) => `WRONG${n}`);
    for (const key of keys) scene.quote(key, 1, 'yesterday');
    const ended = await scene.refresh(keys);
    expect(new Set(ended.map(({ outcome }) => outcome))).toEqual(new Set(['schema']));
    const kept = await scene.db.query<{ key: string }>(
      `select key from pgfresh_engine.refused_answer where key like 'WRONG%' order by key`,
    );
    expect(kept.map(({ key }) => key)).toEqual(keys.slice(-5));
  });
});

describe('what a data type allows', () => {
  it('is another content type, and that a null leaves what is there', async () => {
    const kept = quoteType({ name: 'kept', nulls: 'keep', contentType: 'text/plain' });
    const other = await RefreshScene.open([kept]);
    const tell = (price: number, at: string, name: string | null) =>
      other.provider.text('/quote/A', JSON.stringify({ symbol: 'A', price, at, name }), 'text/plain; charset=utf-8');
    tell(1, '2026-01-05T12:00:00Z', 'somebody');
    expect(await other.outcome('A', 'kept')).toBe('fresh');
    tell(2, '2026-01-05T12:00:01Z', null);
    expect(await other.outcome('A', 'kept')).toBe('fresh');
    expect(await other.rows('quote', 'name, price::float8 as price')).toEqual([{ name: 'somebody', price: 2 }]);
    expect(await other.outcome('A', 'kept')).toBe('unchanged');
  });
});

describe('write modes', () => {
  it('ifGreater writes only what is greater', async () => {
    scene.quote('MORE', 5);
    expect(await scene.outcome('MORE', 'greater')).toBe('fresh');
    scene.quote('MORE', 4);
    expect(await scene.outcome('MORE', 'greater')).toBe('unchanged');
    scene.quote('MORE', 6);
    expect(await scene.outcome('MORE', 'greater')).toBe('fresh');
    expect(await scene.value(`select price::float8 from quote where symbol = 'MORE'`)).toBe(6);
  });

  it('replace writes many rows a key of several columns, and deletes what the answer lacks', async () => {
    const tell = (at: string, ...statements: [string, number][]) =>
      scene.provider.json('/statement/XNYS/IBM', {
        at,
        statements: statements.map(([period, revenue]) => ({ period, revenue })),
      });
    const rows = () =>
      scene
        .rows('statement', `period::text || ' ' || revenue as row, symbol || exchange`)
        .then((all) => all.map((one) => one['row']));
    await scene.db.query(`insert into statement values ('IBM', 'XETR', '2020-01-01', 9, null, now())`);
    tell('2026-01-05T00:00:00Z', ['2024-12-31', 1], ['2025-12-31', 2]);
    expect(await scene.outcome('IBM|XNYS', 'statement')).toBe('fresh');
    expect(await rows()).toEqual(['2020-01-01 9', '2024-12-31 1', '2025-12-31 2']);
    expect(await scene.outcome('IBM|XNYS', 'statement')).toBe('unchanged');
    tell('2026-01-05T00:00:00Z', ['2024-12-31', 1]);
    expect(await scene.outcome('IBM|XNYS', 'statement')).toBe('older_source');
    tell('2026-01-04T00:00:00Z', ['2023-12-31', 7]);
    expect(await scene.outcome('IBM|XNYS', 'statement')).toBe('older_source');
    expect(await rows()).toHaveLength(3);
    tell('2026-01-06T00:00:00Z', ['2025-12-31', 3], ['2026-12-31', 4], ['2026-12-31', 5]);
    expect(await scene.outcome('IBM|XNYS', 'statement')).toBe('fresh');
    expect(await rows()).toEqual(['2020-01-01 9', '2025-12-31 3', '2026-12-31 5']);
    tell('2026-01-07T00:00:00Z');
    expect(await scene.outcome('IBM|XNYS', 'statement')).toBe('empty');
    // An empty list is an answer: there is nothing any more.
    expect(await rows()).toEqual(['2020-01-01 9']);
  });
});

describe('replace beside somebody who writes the table by himself', () => {
  it('leaves his rows that are newer, also those that it could not see when it began', async () => {
    const stranger = await openSession(scene.url);
    await stranger.query('begin');
    await stranger.query(
      `insert into statement values ('NEW', 'X', '2026-01-01', 99, '2026-02-01', now()), ('NEW', 'X', '2027-01-01', 99, '2026-02-01', now())`,
    );
    const statements = ['2025-01-01', '2026-01-01'].map((period) => ({ period, revenue: 1 }));
    scene.provider.json('/statement/X/NEW', { at: '2026-01-05T00:00:00Z', statements });
    const ending = scene.refresh(['NEW|X'], 'statement');
    await blocked(scene.db);
    await stranger.query('commit');
    await ending;
    const rows = await scene.db.query(
      `select period::text, revenue::float8 as revenue from statement where symbol = 'NEW' order by 1`,
    );
    expect(rows).toEqual([
      { period: '2025-01-01', revenue: 1 },
      { period: '2026-01-01', revenue: 99 },
      { period: '2027-01-01', revenue: 99 },
    ]);
  });
});

describe('a commit of many', () => {
  it('finds the one that the table refuses and writes the others', async () => {
    const keys = Array.from({ length: 20 }, (_, n) => `B${String(n).padStart(2, '0')}`);
    for (const [n, key] of keys.entries()) scene.quote(key, n === 7 ? 13 : 100);
    const ended = await scene.refresh(keys);
    expect(ended.filter(({ outcome }) => outcome === 'fresh')).toHaveLength(19);
    expect(ended.find(({ outcome }) => outcome !== 'fresh')).toMatchObject({
      job: { key: 'B07' },
      outcome: 'write_conflict',
      error: expect.stringContaining('quote_price_check'),
    });
    expect(await scene.value(`select count(*)::int from quote where symbol like 'B__'`)).toBe(19);
    expect(
      await scene.value(`select outcome || ' ' || status from pgfresh_engine.history_other where key = 'B07'`),
    ).toBe('write_conflict failed');
  });

  it('turns back each with its own outcome', async () => {
    scene.quote('MIXED1', -1);
    scene.provider.json('/quote/MIXED2', { symbol: 'OTHER', price: 1, at: '2026-01-05T12:00:00Z' });
    expect((await scene.refresh(['MIXED1', 'MIXED2'])).map(({ outcome }) => outcome)).toEqual(['sanity', 'wrong_key']);
    const errors = await scene.db.query(
      `select key, error from pgfresh_engine.job where key like 'MIXED_' order by key`,
    );
    expect(errors).toMatchObject([
      { key: 'MIXED1', error: expect.stringContaining('price') },
      { key: 'MIXED2', error: expect.stringContaining('OTHER') },
    ]);
  });

  it('tells a missing parent from a refused row, also where the constraint is deferred', async () => {
    scene.provider.json('/plain/AAPL', { symbol: 'AAPL', price: 1 });
    scene.provider.json('/plain/ORPHAN', { symbol: 'ORPHAN', price: 1 });
    const ended = await scene.refresh(['AAPL', 'ORPHAN'], 'child');
    expect(ended.map(({ outcome }) => outcome)).toEqual(['fresh', 'dependency']);
    expect(
      await scene.value(`select status from pgfresh.api_call_queue where key = 'ORPHAN' and data_type = 'child'`),
    ).toBe('retryable');
  });
});
