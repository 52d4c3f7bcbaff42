import { readFile } from 'node:fs/promises';
import { describe, expect, it, test } from 'vitest';
import { answers, type Route } from '../../../examples/market/provider/answers.ts';
import { Company } from '../../../examples/market/provider/company.ts';
import { listings } from '../../../examples/market/provider/listings.ts';
import { recordAll, recordedAt, type Recording } from '../../../examples/market/recordings/record.ts';
import { readProblems } from '../../../src/registry/index.ts';
import { rowFindings } from '../../../src/registry/row-contract.ts';
import { mirroredColumns } from '../../../src/registry/table-columns.ts';
import { openSession } from '../../harness/session.ts';
import { openTypes, routeOf, type OpenType } from './open-types.ts';
import { grantedLogin, openMarket } from './scene.ts';
import { registerMarket } from './registered-market.ts';

type Row = Record<string, unknown>;

const recordings = async (type: OpenType) =>
  JSON.parse(await readFile(`examples/market/recordings/${type.name}.json`, 'utf8')) as Recording[];
const rowsOf = (type: OpenType, body: unknown) => [type.rows(type.schema.parse(body))].flat();

describe('schema.sql', () => {
  it('can be applied again and changes nothing then, not even what a user has said', async () => {
    const { db } = await openMarket();
    const everything = () =>
      db.query(`select (select jsonb_agg(x order by x.exchange) from exchanges as x) as exchanges, (select jsonb_agg(x order by x) from exchange_hours as x) as hours,
        (select jsonb_agg(x order by x) from exchange_holidays as x) as holidays, (select jsonb_agg(x order by x.symbol) from symbols as x) as symbols,
        (select jsonb_agg(pg_get_functiondef(oid) order by oid) from pg_proc where pronamespace = 'public'::regnamespace) as functions,
        (select jsonb_agg(attname order by attrelid, attnum) from pg_attribute join pg_class on pg_class.oid = attrelid where relnamespace = 'public'::regnamespace) as columns,
        (select jsonb_agg(relacl::text order by relname) from pg_class where relnamespace = 'public'::regnamespace) as rights`);
    await db.query(`update symbols set active = false where symbol = 'IBM'`);
    const before = await everything();
    await db.query(await readFile('examples/market/schema.sql', 'utf8'));
    expect(await everything()).toEqual(before);
  });

  it('has the symbols of the provider', async () => {
    const { db } = await openMarket();
    const rows = await db.query('select symbol, exchange from symbols');
    const bySymbol = (a: { symbol?: unknown }, b: { symbol?: unknown }) =>
      String(a.symbol) < String(b.symbol) ? -1 : 1;
    expect(rows.toSorted(bySymbol)).toEqual([...listings.values()].toSorted(bySymbol));
  });

  it('is what the registry asks for, and the planner may use all of it', async () => {
    const { db, url } = await openMarket();
    await registerMarket(db);
    expect(await readProblems(db)).toEqual([]);
    const session = await openSession(url);
    await session.query('set role pgfresh_evaluator');
    expect(
      await session.query(
        `select is_exchange_open('AAPL.X', 'quote') as open, exchange_opens_at('AAPL', 'quote') is not null as known`,
      ),
    ).toEqual([{ open: true, known: true }]);
  });

  it('lets a worker write the mirrors, and nothing else', async () => {
    const market = await openMarket();
    await registerMarket(market.db);
    const session = await openSession((await grantedLogin(market, 'worker=$,table=price_points')).url);
    for (const type of openTypes) {
      for (const { body } of await recordings(type)) await write(session, type, rowsOf(type, body));
    }
    await expect(session.query(`update symbols set active = false`)).rejects.toThrow(/permission denied/);
    await expect(session.query(`delete from exchange_holidays`)).rejects.toThrow(/permission denied/);
  });
});

describe('the recordings', async () => {
  const { db } = await openMarket();

  it('are what the provider answers', async () => {
    const now = await recordAll();
    for (const type of openTypes) expect(await recordings(type)).toEqual(now.get(type.name));
  });

  test.each(openTypes)('of $name pass the schema and go into the table', async (type) => {
    const [profile] = openTypes;
    await db.query('truncate profiles cascade');
    for (const { key, body } of await recordings(type)) {
      const rows = rowsOf(type, body);
      for (const row of rows) {
        expect(type.row.parse(row)).toEqual(row);
        expect(row['symbol']).toBe(key);
        expect(type.sanity(row, { now: recordedAt })).toBeUndefined();
      }
      const parents = (await recordings(profile))
        .filter((one) => one.key === key)
        .flatMap((one) => rowsOf(profile, one.body));
      if (type !== profile) {
        if (rows.length > 0) await expect(write(db, type, rows)).rejects.toThrow(/foreign key/);
        await write(db, profile, parents);
      }
      await write(db, type, rows);
    }
    const written = await db.query<{ count: number }>(`select count(*)::int as count from ${type.table}`);
    const all = (await recordings(type)).flatMap(({ body }) => rowsOf(type, body));
    expect(written).toEqual([{ count: all.length }]);
    expect(all.length).toBeGreaterThan(4);
  });

  it('have nulls where the schemas allow them, and a company that pays nothing', async () => {
    const nulls = new Set<string>();
    for (const type of openTypes)
      for (const { body } of await recordings(type))
        for (const row of rowsOf(type, body))
          for (const [column, value] of Object.entries(row)) if (value === null) nulls.add(column);
    expect([...nulls].toSorted()).toEqual(['ceo', 'dividend_yield', 'pe_ratio', 'research_and_development', 'website']);
    const dividends = await recordings(openTypes[4]);
    expect(dividends.filter(({ body }) => rowsOf(openTypes[4], body).length === 0).map(({ key }) => key)).toContain(
      'IT',
    );
  });
});

describe('the data types', () => {
  it('have rows that fit their tables', async () => {
    const { db } = await openMarket();
    const columns = await mirroredColumns(
      db,
      openTypes.map(({ table }) => table),
    );
    for (const type of openTypes) expect(rowFindings(type, columns.get(type.table)!)).toEqual([]);
    const [profile] = openTypes;
    await db.query('alter table profiles add column risk int not null');
    const changed = await mirroredColumns(db, ['profiles']);
    expect(rowFindings(profile, changed.get('profiles')!)).toMatchObject([
      { state: 'fatal', detail: expect.stringContaining('risk') },
    ]);
  });

  test.each(openTypes)('of $name accept every symbol, on any day', (type) => {
    const route = routeOf(type) as Route;
    for (const days of [0, -200, 300]) {
      const now = new Date(recordedAt.getTime() + days * 86_400_000);
      for (const listing of listings.values()) {
        const answer = answers[route](new Company(days, listing), now.getTime(), { period: 'quarter', limit: 8 });
        for (const row of rowsOf(type, answer))
          expect([listing.symbol, type.sanity(type.row.parse(row), { now })]).toEqual([listing.symbol, undefined]);
      }
    }
  });
});

async function write(
  db: { query: (text: string, values: readonly unknown[]) => Promise<unknown> },
  { table }: OpenType,
  rows: Row[],
): Promise<void> {
  const fetched = rows.map((row) => ({ ...row, fetched_at: recordedAt.toISOString() }));
  await db.query(`insert into ${table} select * from jsonb_populate_recordset(null::${table}, $1::jsonb)`, [
    JSON.stringify(fetched),
  ]);
}
