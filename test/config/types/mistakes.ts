// What must compile, and what must not: tsc fails where an expected error does not come.
import { defineConfig, defineDataType, defineJob, defineSource } from 'pgfresh';
import { z } from 'zod';

const answer = z.object({ symbol: z.string(), price: z.number(), at: z.string() });
const row = z.object({ symbol: z.string(), price: z.number(), quoted_at: z.string() });
const table = { source: 'market', table: 'quote', timestamp: 'fetched_at', ttl: '15m' } as const;
const fetched = { ...table, schema: answer, request: (key: string) => ({ url: key }) };

// With a schema of the row, its columns are those of the schema.
const quote = defineDataType({
  ...fetched,
  name: 'quote',
  key: 'symbol',
  row,
  rows: ({ symbol, price, at }) => ({ symbol, price, quoted_at: at }),
  sourceTimestamp: 'quoted_at',
  sanity: { price: { above: 0 } },
  write: { mode: 'merge', ifGreater: 'quoted_at' },
});
defineDataType({
  ...fetched,
  name: 'quote',
  row,
  rows: ({ symbol, price, at }) => ({ symbol, price, quoted_at: at }),
  // @ts-expect-error There is no such column.
  key: 'symbool',
});
defineDataType({
  ...fetched,
  name: 'quote',
  row,
  rows: ({ symbol, price, at }) => ({ symbol, price, quoted_at: at }),
  // @ts-expect-error There is no such column.
  key: ['symbol', 'exchange'],
});
defineDataType({
  ...fetched,
  name: 'quote',
  key: 'symbol',
  row,
  rows: ({ symbol, price, at }) => ({ symbol, price, quoted_at: at }),
  // @ts-expect-error There is no such column.
  sanity: { prise: { above: 0 } },
});
defineDataType({
  ...fetched,
  name: 'quote',
  key: 'symbol',
  row,
  rows: ({ symbol, price, at }) => ({ symbol, price, quoted_at: at }),
  // @ts-expect-error There is no such bound.
  sanity: { price: { over: 0 } },
});
defineDataType({
  ...fetched,
  name: 'quote',
  key: 'symbol',
  row,
  rows: ({ symbol, price, at }) => ({ symbol, price, quoted_at: at }),
  // @ts-expect-error There is no such column.
  sourceTimestamp: 'quoted',
});
defineDataType({
  ...fetched,
  name: 'quote',
  key: 'symbol',
  row,
  rows: ({ symbol, price, at }) => ({ symbol, price, quoted_at: at }),
  // @ts-expect-error There is no such column.
  write: { mode: 'merge', ifGreater: 'nope' },
});
defineDataType({
  ...fetched,
  name: 'quote',
  key: 'symbol',
  row,
  rows: ({ symbol, price, at }) => ({ symbol, price, quoted_at: at }),
  // @ts-expect-error A row has no such column.
  sanity: ({ prise }) => (prise === 0 ? 'it costs nothing' : undefined),
});

// Without one, they are those of what rows returns.
const profile = defineDataType({
  ...fetched,
  name: 'profile',
  key: 'symbol',
  rows: ({ symbol, price }) => [{ symbol, cost: price }],
  sanity: { cost: { min: 0 } },
});
defineDataType({
  ...fetched,
  name: 'profile',
  // @ts-expect-error There is no such column.
  key: 'symbool',
  rows: ({ symbol, price }) => [{ symbol, cost: price }],
});
defineDataType({
  ...fetched,
  name: 'profile',
  key: 'symbol',
  rows: ({ symbol, price }) => [{ symbol, cost: price }],
  // @ts-expect-error That is a field of the answer, and no column.
  sanity: { price: { min: 0 } },
});
defineDataType({
  ...fetched,
  name: 'profile',
  key: 'symbol',
  rows: ({ symbol, price }) => [{ symbol, cost: price }],
  // @ts-expect-error There is no such column.
  sourceTimestamp: 'quoted_at',
});
defineDataType({
  ...fetched,
  name: 'profile',
  key: 'symbol',
  rows: ({ symbol, price }) => (price > 0 ? { symbol, price } : { symbol, flat: true }),
  sanity: { price: { below: 1e6 } },
});

// Where neither says anything, any name may be one.
const plain = defineDataType({ ...table, name: 'plain', key: ['symbol', 'day'], sourceTimestamp: 'at' });
defineDataType({ ...fetched, name: 'none', key: 'symbol', rows: () => null });
defineDataType({ ...fetched, name: 'some', key: 'symbol', rows: (): Record<string, unknown> => ({}) });

// Times and sizes are texts of one form.
// @ts-expect-error The unit is m.
defineDataType({ ...table, name: 'quote', key: 'symbol', ttl: '15 minutes' });
// @ts-expect-error It has no unit.
defineDataType({ ...table, name: 'quote', key: 'symbol', emptyTtl: '900' });
// @ts-expect-error That is no time.
defineSource({ name: 'market', timeout: 'soon' });
// @ts-expect-error The unit is GB.
defineSource({ name: 'market', quotaBytes: '20 gigs' });
defineSource({ name: 'market', quotaBytes: '20GB', quotaWindow: '30d', maxWireBytes: '1.5MiB', timeout: 2_500 });
// @ts-expect-error The unit is m.
defineJob({ name: 'job', function: 'work', every: ['10m', '15min'] });
// @ts-expect-error That is no time.
defineConfig({ statementTimeout: 'long' });

// A data type that another one needs is there, or is said to be in the database.
const needing = defineDataType({ ...table, name: 'needing', key: 'symbol', dependsOn: ['profile', quote] });
const mistaken = defineDataType({ ...table, name: 'mistaken', key: 'symbol', dependsOn: ['profle'] });
const foreign = defineDataType({ ...table, name: 'foreign', key: 'symbol', dependsOn: [{ name: 'earnings' }] });
export const good = defineConfig({ dataTypes: [quote, profile, plain, needing, foreign] });
const list = [quote, profile, needing];
export const listed = defineConfig({ dataTypes: list });
export const nothing = defineConfig({});
// @ts-expect-error There is no data type "profle".
export const bad = defineConfig({ dataTypes: [quote, profile, mistaken] });
// @ts-expect-error There is no data type "profile" here.
export const lacking = defineConfig({ dataTypes: [quote, needing] });
