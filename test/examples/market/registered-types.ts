import { marketTypes } from '../../../examples/market/types/index.ts';
import { resolveConfig, type Config } from '../../../src/config/index.ts';
import { dataTypeSchema } from '../../../src/config/data-type.ts';
import type { Database } from '../../../src/database/index.ts';
import { Events } from '../../../src/events/index.ts';
import { syncRegistry } from '../../../src/registry/index.ts';

/** Registers the data types of the example, as far as the registry knows their options. */
export async function registerTypes(db: Database): Promise<void> {
  const known = Object.keys(dataTypeSchema.shape);
  const dataTypes = marketTypes.map((type) =>
    Object.fromEntries(Object.entries(type).filter(([name]) => known.includes(name))),
  );
  const config = {
    sources: [{ name: 'market', rateLimitPerMinute: 300, quotaBytes: '20GB' }],
    dataTypes,
  } as unknown as Config;
  await syncRegistry(db, resolveConfig({ config, file: 'pgfresh.config.ts' }), new Events());
}
