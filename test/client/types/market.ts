// What must compile and what must not: tsc fails where an expected error does not occur.
import { createClient, type Fresh, type JsonRow } from 'pgfresh/client';
import { createHeartbeat } from 'pgfresh/client/heartbeat';
import { useFresh, useFreshMany, usePresence } from 'pgfresh/react';
import { defineDataType } from 'pgfresh';
import { z } from 'zod';
import type { marketTypes } from '../../../examples/market/types/index.ts';

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
const holds = <_Claim extends true>(): void => {};

const client = createClient<typeof marketTypes>({ url: 'http://127.0.0.1:4400' });

client.subscribe('quote', 'AAPL', ({ data, rows, fetchedAt }) => {
  holds<Same<typeof fetchedAt, Date | null>>();
  const price: number | undefined = data?.price;
  // A date column arrives as a string.
  const updated: string | undefined = rows[0]?.source_updated_at;
  // @ts-expect-error It may be undefined.
  const sure: number = data.price;
  // @ts-expect-error There is no such column.
  const typo: unknown = data?.prise;
  // @ts-expect-error A state is read-only.
  rows.push(rows[0]!);
  return [price, updated, sure, typo];
});
client.subscribe('dividend-history', 'AAPL', ({ rows }) => rows.map(({ amount, ex_date }) => `${ex_date} ${amount}`));
// @ts-expect-error There is no such data type.
client.subscribe('qoute', 'AAPL');
// @ts-expect-error A key is a string.
client.subscribe('quote', 7);
// @ts-expect-error There is no such data type.
void client.refreshNow('quotes', 'AAPL');
// @ts-expect-error There is no such data type.
client.onViewers('quotes', 'AAPL', () => {});
// @ts-expect-error There is no such data type.
client.peek('quotes', 'AAPL');
// @ts-expect-error There is no such data type.
client.viewers('quotes', 'AAPL');
// @ts-expect-error There is no such data type.
void client.get('quotes', 'AAPL');
// @ts-expect-error There is no such column.
export const peeked: unknown = client.peek('quote', 'AAPL').data?.prise;
const got: Promise<Fresh<{ readonly symbol: string }>> = client.get('profile', 'AAPL');
// @ts-expect-error A profile has no price.
export const priceOf = async () => (await client.get('profile', 'AAPL')).data?.price;
export { got };

// A map of names to rows works the same.
const mapped = createClient<{ coin: { grade: string } }>();
mapped.subscribe('coin', '1', ({ data }) => data?.grade);
// @ts-expect-error There is no such column.
mapped.subscribe('coin', '1', ({ data }) => data?.grades);

// A schema transforms values before they are written; a Date is a string in JSON, and an omitted value is null.
const event = defineDataType({
  name: 'event',
  source: 'somewhere',
  table: 'event',
  key: 'id',
  timestamp: 'at',
  ttl: '1h',
  row: z.object({
    id: z.string(),
    at: z.date(),
    size: z.bigint(),
    note: z.string().optional(),
    tags: z.array(z.date()),
  }),
});
const plain = defineDataType({ name: 'plain', source: 's', table: 't', key: 'k', timestamp: 'at', ttl: '1h' });
const types = [event, plain];
createClient<typeof types>().subscribe('event', '1', ({ data }) => {
  const row = data!;
  holds<Same<typeof row.at, string>>();
  holds<Same<typeof row.size, number>>();
  holds<Same<typeof row.note, string | null>>();
  holds<Same<(typeof row.tags)[number], string>>();
});
createClient<typeof types>().subscribe('plain', '1', ({ data }) => holds<Same<typeof data, JsonRow | undefined>>());

// Hooks, heartbeats and clients use the registered types.
declare module 'pgfresh/client' {
  interface Register {
    types: typeof marketTypes;
  }
}
export function Card() {
  const { data, refreshNow } = useFresh('quote', 'AAPL');
  const many = useFreshMany('ratios-ttm', ['AAPL']);
  // @ts-expect-error There is no such data type.
  useFresh('quotes', 'AAPL');
  // @ts-expect-error There is no such data type.
  useFreshMany('quotes', ['AAPL']);
  // @ts-expect-error There is no such data type.
  usePresence('quotes', 'AAPL');
  // @ts-expect-error There is no such column.
  const ratio: unknown = many[0]?.data?.pe_ration;
  // @ts-expect-error There is no such column.
  const typo: unknown = data?.prise;
  void refreshNow();
  return [data?.price, many[0]?.key, typo, ratio];
}
createHeartbeat({ call: () => {} }).subscribe('quote', 'AAPL');
// @ts-expect-error There is no such data type.
createHeartbeat({ call: () => {} }).subscribe('quotes', 'AAPL');
// @ts-expect-error There is no such data type.
createClient().subscribe('quotes', 'AAPL');
