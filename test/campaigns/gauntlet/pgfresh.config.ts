/** What the processes of the gauntlet run with. GAUNTLET has what differs between them, as JSON. */
import { defineConfig, defineDataType, defineJob, defineSource } from 'pgfresh';
import { z } from 'zod';
import { apiKeys, place, sources, variants, wide, type SourceName, type Variant, type VariantName } from './cast.ts';

const { provider, variant, tag } = JSON.parse(process.env['GAUNTLET'] ?? '{}') as {
  provider: string;
  variant: VariantName;
  /** Names the process in every call, so that the provider knows who made it. */
  tag: string;
};
for (const key of apiKeys) process.env[`GAUNTLET_KEY_${key}`] = key;

const { rates, keys, breakerFailures, placeTtl }: Variant = variants[variant];
const defined = (Object.keys(sources) as SourceName[]).map((name) => {
  const { rate, ...limits } = sources[name] as { rate?: number; quotaBytes?: '200MB'; concurrency?: number };
  return defineSource({
    name,
    baseUrl: `${provider}/${name}`,
    allowPrivateAddresses: true,
    cacheEntries: 0,
    timeout: '5s',
    rateLimitPerMinute: rates[name] ?? rate,
    breaker: { failures: breakerFailures, window: '1m', pause: '5s' },
    apiKeys: (keys[name] ?? ['c1']).map((key) => ({ env: `GAUNTLET_KEY_${key}` })),
    authorize: (_request, { apiKey }) => ({ headers: { 'x-api-key': apiKey! } }),
    headers: { 'x-process': tag },
    ...limits,
  });
});

const answer = defineDataType({
  name: 'answer',
  source: 'calm',
  table: 'bystander',
  key: 'key',
  timestamp: 'fetched_at',
  ttl: '1h',
  keyPattern: '^$never',
  sourceTimestamp: 'served_at',
  schema: z.strictObject({ key: z.string(), value: z.number(), note: z.string(), served_at: z.string() }),
  request: (key, { dataType }) => ({ url: `/${dataType}/${encodeURIComponent(key)}` }),
  rows: (row) => row,
  sanity: { value: { above: 0 } },
});

const served = { value: z.number(), note: z.string(), served_at: z.string() };
const places = defineDataType({
  name: place.name,
  source: 'rounds',
  table: place.name,
  key: ['area', 'spot'],
  timestamp: 'fetched_at',
  ttl: placeTtl,
  keys: { table: 'places', column: 'key', active: 'active' },
  schedule: { cron: '* * * * *' },
  sourceTimestamp: 'served_at',
  schema: z.strictObject({ area: z.string(), spot: z.string(), ...served }),
  request: (key, { dataType }) => ({ url: `/${dataType}/${encodeURIComponent(key)}` }),
  rows: (row) => row,
});

const text = z.string().optional();
const wides = defineDataType({
  name: wide.name,
  source: 'gamma',
  table: wide.name,
  key: 'key',
  timestamp: 'fetched_at',
  ttl: '1h',
  sourceTimestamp: 'served_at',
  schema: z.strictObject({
    key: z.string(),
    ...served,
    a: text,
    b: text,
    c: text,
    d: text,
    e: text,
    f: text,
    g: text,
    h: text,
  }),
  request: (key, { dataType }) => ({ url: `/${dataType}/${encodeURIComponent(key)}` }),
  rows: (row) => row,
});

export default defineConfig({
  sources: defined,
  dataTypes: [answer, places, wides],
  jobs: [defineJob({ name: 'doze', function: 'doze', every: ['5s', '15s'], timeout: '20s' })],
  gateway: {
    anonymous: 'loopback',
    limits: { newPairsPerMinute: 100_000, pairsPerUser: 100_000, refreshesPerMinute: 1000, connectionsPerUser: 500 },
  },
});
