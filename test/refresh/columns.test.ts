import { beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { resolveConfig } from '../../src/config/index.ts';
import type { Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { examineFetchers, readCatalog } from '../../src/refresh/index.ts';
import { sanityDetail } from '../../src/refresh/sanity.ts';
import { syncRegistry } from '../../src/registry/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';

let database: Database;
beforeAll(async () => {
  database = openDatabase(await createDatabase());
  await database.query(`create table public.quote (symbol text primary key, price numeric, quoted_at timestamptz,
    note text, fetched_at timestamptz)`);
});

const row = z.object({ symbol: z.string(), price: z.number() });
const configured = (changes: object) =>
  resolveConfig({
    config: {
      sources: [{ name: 'market' }],
      dataTypes: [
        {
          name: 'quote',
          source: 'market',
          table: 'quote',
          key: 'symbol',
          timestamp: 'fetched_at',
          ttl: '1m',
          schema: row,
          request: (key: string) => ({ url: key }),
          rows: (answer: unknown) => answer as object,
          ...changes,
        },
      ],
    },
    file: 'x.ts',
  });

describe('truth 9: a column that no row can have', () => {
  it.each([
    [{ sanity: { prise: { above: 0 } } }, 'sanity: public.quote has no column prise; did you mean "price"?'],
    [{ sourceTimestamp: 'quoted' }, 'sourceTimestamp: public.quote has no column quoted'],
    [
      { write: { mode: 'merge', ifGreater: 'prize' } },
      'write: public.quote has no column prize; did you mean "price"?',
    ],
    [{ row, sanity: { note: { above: 0 } } }, 'sanity: the schema row has no column note'],
    [{ row, sourceTimestamp: 'quoted_at' }, 'sourceTimestamp: the schema row has no column quoted_at'],
    [{ row: z.object({ price: z.number() }) }, 'key: the schema row has no column symbol'],
  ])('of %j is refused by check and at the start of a worker', async (changes, problem) => {
    const config = configured(changes);
    // The registry has its own opinion of some of them.
    await syncRegistry(database, configured({}), new Events());
    const { types, problems } = await readCatalog(database, { sources: config.sources, dataTypes: config.dataTypes! });
    expect([types.size, problems.map((one) => one.problem)]).toEqual([0, [expect.stringContaining(problem)]]);
    const findings = await examineFetchers(database, config);
    expect(findings).toContainEqual(
      expect.objectContaining({
        name: 'data type quote',
        state: 'fatal',
        detail: expect.stringContaining(problem) as string,
        next: 'Add the column, or correct the data type.',
      }),
    );
  });

  it('is not said to be within its bounds', () => {
    const bounds = { price: { above: 0 }, volume: { min: 0 } };
    expect(sanityDetail(bounds, [{ price: 1 }])).toBe('price within bounds; no row has volume');
    expect(sanityDetail({ volume: { min: 0 } }, [{ price: 1 }])).toBe('nothing was checked; no row has volume');
    expect(sanityDetail(bounds, [{ price: 1 }, { price: 2, volume: null }])).toBe('price, volume within bounds');
  });
});

describe('truth 26: check of a data type without row', () => {
  const schema = z.object({
    symbol: z.string(),
    price: z.number().nullable(),
    time: z.iso.datetime(),
    more: z.array(z.object({ text: z.string() })),
  });
  const rows = ({ symbol, price, time, more }: z.output<typeof schema>) => [
    { symbol, price, quoted_at: new Date(time).toISOString(), note: more[0]!.text },
  ];
  const mismatches = async (changes: object) =>
    (await examineFetchers(database, configured(changes)))
      .filter(({ code }) => code === 'PGF_ROW_MISMATCH')
      .map(({ state, detail, next }) => [state, detail, next]);

  it('sees a renamed column, and one that is needed and not filled in', async () => {
    await syncRegistry(database, configured({}), new Events());
    expect(await mismatches({ schema, rows })).toEqual([]);
    await database.query('alter table public.quote rename column price to prices');
    expect(await mismatches({ schema, rows })).toEqual([
      [
        'fatal',
        'rows fills in price, and public.quote has no such column; did you mean "prices"?',
        'Add the column to public.quote, or correct rows of the data type.',
      ],
    ]);
    await database.query('alter table public.quote rename column prices to price');
    await database.query('alter table public.quote add column exchange text not null');
    expect(await mismatches({ schema, rows })).toEqual([
      [
        'warning',
        'column exchange of public.quote is not null and has no default, and rows does not fill it in',
        'Fill it in, or give the column a default.',
      ],
    ]);
    await database.query('alter table public.quote drop column exchange');
  });

  it('says nothing where rows cannot be asked', async () => {
    const fails = () => {
      throw new Error('no real answer');
    };
    expect(await mismatches({ schema, rows: fails })).toEqual([]);
    expect(await mismatches({ schema: z.any(), rows: (answer: { deep: { symbol: string } }) => answer.deep })).toEqual(
      [],
    );
    expect(await mismatches({ schema, rows: () => null })).toEqual([]);
  });
});
