import { z } from 'zod';
import { defineConfig, defineDataType, defineSource } from '../../src/index.ts';

const metered = (baseUrl: string) =>
  defineSource({
    name: 'metered',
    baseUrl,
    allowPrivateAddresses: true,
    rateLimitPerMinute: 10,
    quotaBytes: '1GB',
  });
const free = (baseUrl: string) => defineSource({ name: 'free', baseUrl, allowPrivateAddresses: true });

const answer = z.object({ key: z.string(), value: z.number() });
const fetching = (path: string) => ({
  schema: answer,
  request: (key: string) => ({ url: `/${path}/${encodeURIComponent(key)}` }),
  rows: ({ key, value }: z.output<typeof answer>) => ({ key, value }),
});
const keys = { table: 'shop.symbol', column: 'symbol', active: 'listed' };

/** Every kind of data type and job, for a database that has everything in it. */
export const everything = (baseUrl: string, anonymousRole: string) =>
  defineConfig({
    logLevel: 'silent',
    token: 'a token of this test',
    sources: [metered(baseUrl), free(baseUrl)],
    dataTypes: [
      defineDataType({
        name: 'quote',
        source: 'metered',
        table: 'quote',
        key: 'key',
        timestamp: 'fetched_at',
        ttl: '1m',
        ...fetching('quote'),
      }),
      defineDataType({
        name: 'profile',
        source: 'free',
        table: 'shop.profile',
        key: 'key',
        timestamp: 'fetched_at',
        ttl: '1h',
        staleness: 'shop.is_old',
        gate: 'shop.is_open',
        gateOpens: 'shop.opens_at',
        keys,
        ...fetching('profile'),
      }),
      defineDataType({
        name: 'daily',
        source: 'free',
        table: 'shop.daily',
        key: 'key',
        timestamp: 'fetched_at',
        ttl: '1d',
        schedule: { cron: '0 0 1 1 *' },
        keys,
        dependsOn: ['profile'],
        ...fetching('daily'),
      }),
      defineDataType({
        name: 'chart',
        source: 'free',
        table: 'shop.chart',
        key: ['symbol', 'days'],
        timestamp: 'fetched_at',
        ttl: '1h',
        ttlColumn: 'minutes',
        schema: answer,
        request: (key) => ({ url: `/chart/${encodeURIComponent(key)}` }),
        rows: ({ key, value }) => ({ symbol: key.split('|')[0]!, days: Number(key.split('|')[1]), value }),
      }),
      defineDataType({
        name: 'holding',
        source: 'free',
        table: 'shop.holding',
        key: 'key',
        timestamp: 'fetched_at',
        ttl: '1h',
        visibility: 'rls',
        ...fetching('holding'),
      }),
    ],
    jobs: [{ name: 'hourly', schedule: '0 * * * *', handler: async () => ({ success: true, message: 'handled' }) }],
    gateway: { anonymous: 'loopback', rls: { anonymousRole } },
  });
