import config from '../../../examples/market/pgfresh.config.ts';
import { resolveConfig, type ResolvedConfig } from '../../../src/config/index.ts';
import type { Database } from '../../../src/database/index.ts';
import { Events } from '../../../src/events/index.ts';
import type { SourceDefinition } from '../../../src/index.ts';
import { syncRegistry } from '../../../src/registry/index.ts';

/** The configuration of the example, with some options of its source changed, registered in the database. */
export async function registerMarket(db: Database, changes: Partial<SourceDefinition> = {}): Promise<ResolvedConfig> {
  const [market] = config.sources!;
  const sources = [{ ...market!, ...changes }];
  const resolved = resolveConfig({ config: { ...config, sources }, file: 'pgfresh.config.ts' });
  await syncRegistry(db, resolved, new Events());
  return resolved;
}
