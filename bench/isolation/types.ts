import { resolveConfig, type ResolvedConfig } from '../../src/config/index.ts';
import { defineDataType, defineSource } from '../../src/index.ts';
import { pathOf, quoteSchema, rowOf } from '../worker/mirror.ts';
import type { Plan } from './plan.ts';

/** The two faulty types. */
export const harmed = ['hung', 'locked'] as const;

export function otherTypes({ types }: Plan): string[] {
  return Array.from({ length: types }, (_, place) => `quote_${place + 1}`);
}

/** All types of one source, each with a table of its name. */
export function configFor(plan: Plan, provider: string): ResolvedConfig {
  const market = defineSource({
    name: 'market',
    baseUrl: provider,
    allowPrivateAddresses: true,
    headers: { 'x-api-key': 'demo-1' },
    cacheEntries: 0,
  });
  const dataTypes = [...otherTypes(plan), ...harmed].map((name) =>
    defineDataType({
      name,
      source: market,
      table: name,
      key: 'symbol',
      timestamp: 'fetched_at',
      ttl: `${plan.ttlSeconds}s`,
      schema: quoteSchema,
      request: (symbol) => ({ url: pathOf(symbol) }),
      rows: rowOf,
    }),
  );
  return resolveConfig({ config: { sources: [market], dataTypes } });
}
