import { describe, expect, expectTypeOf, it } from 'vitest';
import { z } from 'zod';
import { resolveConfig } from '../../src/config/index.ts';
import { defineDataType, type Config, type DataTypeDefinition } from '../../src/index.ts';

const common = {
  name: 'quote',
  source: 'market',
  table: 'quote',
  key: 'symbol',
  timestamp: 'fetched_at',
  ttl: '15m',
} as const;
const answer = z.object({ symbol: z.string(), price: z.number(), at: z.string().transform((text) => new Date(text)) });
const row = z.object({ symbol: z.string(), price: z.number(), name: z.string().nullable().optional() });
const fetched = { schema: answer, request: () => ({ url: '/' }), rows: () => [] };

const read = (changes: object) =>
  resolveConfig({ config: { dataTypes: [{ ...common, ...changes }] }, file: 'x.ts' }).dataTypes![0]!;

describe('how a data type is fetched', () => {
  it('may say everything', () => {
    const all = {
      ...fetched,
      row,
      sanity: { price: { above: 0, max: 10 } },
      write: { mode: 'merge', ifGreater: 'price', maxDeletes: 0.5 },
      nulls: 'keep',
      empty: { status: [204, 404], ttl: 3_600_000, rows: 'delete' },
      evictAfter: 86_400_000,
      contentType: 'text/plain',
      sourceTimestamp: 'quoted_at',
    };
    expect(read(all)).toMatchObject(all);
    for (const mode of ['merge', 'replace']) {
      expect(read({ ...fetched, write: mode }).write).toEqual({ mode, maxDeletes: 0.25 });
      expect(read({ ...fetched, write: { mode, maxDeletes: 1 } }).write).toEqual({ mode, maxDeletes: 1 });
    }
  });

  it.each<[string, object, RegExp]>([
    [
      'a request alone',
      { request: fetched.request },
      /schema \("quote"\): expected request, schema and rows together, because there is request, got nothing$/,
    ],
    ['rows alone', { rows: fetched.rows }, /request .*together, because there is rows/],
    ['bounds alone', { sanity: { price: { min: 1 } } }, /request .*together, because there is sanity/],
    [
      'a request that is none',
      { ...fetched, request: '/quote' },
      /request .*expected a function \(key, context\) that returns a request, got "\/quote"$/,
    ],
    [
      'rows that are none',
      { ...fetched, rows: {} },
      /rows .*expected a function \(answer, context\) that returns rows/,
    ],
    [
      'a schema that is none',
      { ...fetched, schema: { symbol: 'string' } },
      /schema .*expected a schema that follows standardschema\.dev/,
    ],
    [
      'a mistyped bound',
      { ...fetched, sanity: { price: { mim: 1 } } },
      /sanity\.price\.mim .*did you mean "min"\?$|sanity/,
    ],
    ['bounds without any', { ...fetched, sanity: { price: {} } }, /sanity/],
    [
      'another write mode',
      { ...fetched, write: 'append' },
      /write .*expected "merge", "replace" or an object with mode, got "append"$/,
    ],
    [
      'a share of more than all',
      { ...fetched, write: { mode: 'replace', maxDeletes: 25 } },
      /write.*expected a share from 0 to 1, got /,
    ],
    [
      'a share below nothing',
      { ...fetched, write: { mode: 'replace', maxDeletes: -0.1 } },
      /write.*expected a share from 0 to 1/,
    ],
    [
      'a share of words',
      { ...fetched, write: { mode: 'replace', maxDeletes: '25%' } },
      /write.*expected a share from 0 to 1/,
    ],
    [
      'a condition where all is replaced',
      { ...fetched, write: { mode: 'replace', ifGreater: 'price' } },
      /write .*expected ifGreater with merge only/,
    ],
    [
      'a mistyped option of writing',
      { ...fetched, write: { mode: 'replace', maxDelete: 1 } },
      /write.*did you mean "maxDeletes"\?/,
    ],
    ['another fate of rows', { ...fetched, empty: { rows: 'drop' } }, /empty\.rows .*got "drop"$/],
    ['a bad time for nothing', { ...fetched, empty: { ttl: '-1s' } }, /empty\.ttl .*got "-1s"$/],
    ['a mistyped option of nothing', { ...fetched, empty: { row: 'keep' } }, /empty\.row .*did you mean "rows"\?$/],
    [
      'an eviction at once',
      { ...fetched, evictAfter: '1m' },
      /evictAfter .*expected a time from 1h to 3660d, got "1m"$/,
    ],
    [
      'an eviction beside a schedule',
      { ...fetched, evictAfter: '7d', keys: { table: 's', column: 's' }, schedule: { cron: '0 6 * * *' } },
      /evictAfter .*expected no schedule beside it, which would fetch again what was evicted/,
    ],
    ['another policy of nulls', { ...fetched, nulls: 'drop' }, /nulls .*got "drop"$/],
    ['a status of success', { ...fetched, empty: { status: [100] } }, /empty\.status\[0\] .*got 100$/],
    [
      'a source timestamp of the key',
      { ...fetched, sourceTimestamp: 'symbol' },
      /sourceTimestamp .*expected a column that is neither the timestamp nor of the key, got "symbol"$/,
    ],
    [
      'a source timestamp that is the timestamp',
      { ...fetched, sourceTimestamp: 'fetched_at' },
      /neither the timestamp nor of the key/,
    ],
    ['a mistyped option', { ...fetched, rowz: 1 }, /rowz .*did you mean "rows"\?$|did you mean "row"\?$/],
  ])('is refused with %s', (_name, changes, message) => {
    expect(() => read(changes)).toThrow(message);
  });
});

describe('the types', () => {
  it('flow from the schema to rows, and from the schema of a row back to it', () => {
    defineDataType({
      ...common,
      schema: answer,
      row,
      request: (key, context) => {
        expectTypeOf(key).toEqualTypeOf<string>();
        expectTypeOf(context.keyParts).toEqualTypeOf<readonly string[]>();
        return { url: key };
      },
      rows: (value, context) => {
        expectTypeOf(value).toEqualTypeOf<{ symbol: string; price: number; at: Date }>();
        expectTypeOf(context.fetchedAt).toEqualTypeOf<Date>();
        return [{ symbol: value.symbol, price: value.price }];
      },
      sanity: (one) => {
        expectTypeOf(one.price).toEqualTypeOf<number>();
        return undefined;
      },
    });
  });

  it('let rows be anything where no schema of a row says otherwise', () => {
    defineDataType({
      ...common,
      schema: answer,
      request: () => ({ url: '/' }),
      rows: ({ symbol }) => ({ symbol, more: 1 }),
    });
    defineDataType({ ...common, schema: answer, request: () => ({ url: '/' }), rows: () => null });
  });

  it('refuse what does not fit', () => {
    defineDataType({
      ...common,
      schema: answer,
      row,
      request: () => ({ url: '/' }),
      // @ts-expect-error -- the price of a row is a number
      rows: ({ symbol, price }) => ({ symbol, price: String(price) }),
    });
    defineDataType({
      ...common,
      schema: answer,
      request: () => ({ url: '/' }),
      // @ts-expect-error -- the answer has no such field
      rows: ({ symbol, volume }) => ({ symbol, volume: volume as number }),
    });
    // @ts-expect-error -- a request has a url
    defineDataType({ ...common, schema: answer, request: () => ({ path: '/' }), rows: () => [] });
  });

  it('make one list of types with different answers', () => {
    const other = z.object({ symbol: z.number() });
    const one = defineDataType({ ...common, schema: answer, request: () => ({ url: '/' }), rows: (value) => value });
    const two = defineDataType({
      ...common,
      name: 'two',
      schema: other,
      request: () => ({ url: '/' }),
      rows: (value) => value,
    });
    expectTypeOf([one, two]).toExtend<NonNullable<Config['dataTypes']>>();
    expectTypeOf(one).toExtend<DataTypeDefinition>();
    expectTypeOf(two.name).toEqualTypeOf<'two'>();
  });
});
