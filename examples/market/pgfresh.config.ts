import { defineConfig, defineSource } from 'pgfresh';
import { startMarket } from './dev.ts';
import { marketJobs } from './jobs/index.ts';
import { marketTypes } from './types/index.ts';

// A key of your own is a secret, and only in the environment. This one opens nothing but the provider in this folder.
process.env['MARKET_API_KEY'] ??= 'demo-1';

/** The provider of `provider/main.ts`, on this machine. */
const market = defineSource({
  name: 'market',
  baseUrl: process.env['MARKET_URL'] ?? 'http://127.0.0.1:4010',
  allowPrivateAddresses: true,
  apiKeys: [{ env: 'MARKET_API_KEY' }],
  authorize: (_request, { apiKey }) => ({ headers: { 'x-api-key': apiKey! } }),
  rateLimitPerMinute: 300,
  quotaBytes: '20GB',
});

export default defineConfig({
  sources: [market],
  dataTypes: marketTypes,
  jobs: marketJobs,
  // Anyone on this machine may view, even from a local file. If others can connect, configure `jwt` here.
  gateway: { anonymous: 'loopback', origins: ['null'] },
  dev: startMarket,
});
