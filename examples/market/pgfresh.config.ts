import { defineConfig, defineSource } from 'pgfresh';
import { marketTypes } from './types/index.ts';

/** The provider of `provider/main.ts`, on this machine. Its key is in the environment, and never here. */
const market = defineSource({
  name: 'market',
  baseUrl: process.env['MARKET_URL'] ?? 'http://127.0.0.1:4010',
  allowPrivateAddresses: true,
  apiKeys: [{ env: 'MARKET_API_KEY' }],
  authorize: (_request, { apiKey }) => ({ headers: { 'x-api-key': apiKey! } }),
  rateLimitPerMinute: 300,
  quotaBytes: '20GB',
});

export default defineConfig({ sources: [market], dataTypes: marketTypes });
