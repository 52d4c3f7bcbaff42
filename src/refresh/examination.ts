import type { Queryable } from '../database/index.ts';
import { PgfreshError } from '../errors/index.ts';
import { readCatalog, type Fetchers } from './catalog.ts';

/** One check of what can be fetched; `pgfresh check` shows it beside its own. */
interface RefreshFinding {
  readonly name: string;
  readonly state: 'ok' | 'warning' | 'fatal';
  readonly detail: string;
  readonly code?: string;
  readonly next?: string;
}

interface Configured extends Pick<Fetchers, 'sources'> {
  readonly dataTypes?: Fetchers['dataTypes'] | undefined;
  readonly file: string | undefined;
}

/** Which data types this configuration can refresh, and what is in the way of the others that it has fetchers for. */
export async function examineFetchers(
  db: Queryable,
  { sources, dataTypes = [], file }: Configured,
): Promise<RefreshFinding[]> {
  const { types, problems } = await readCatalog(db, { sources, dataTypes });
  const findings = problems.map(({ type, problem, next }): RefreshFinding => {
    return { name: `data type ${type}`, state: 'fatal', detail: problem, code: 'PGF_FETCHER_MISSING', next };
  });
  for (const { name, sourceTimestamp, fetcher } of types.values()) {
    if (sourceTimestamp !== null || fetcher.sourceTimestamp === undefined) continue;
    findings.push({
      name: `data type ${name}`,
      state: 'warning',
      detail: `its fetcher has the source timestamp ${fetcher.sourceTimestamp} and the registry has none, so older data may replace newer`,
      next: `Run: update pgfresh.data_type_registry set source_timestamp_field = '${fetcher.sourceTimestamp}' where data_type = '${name}';`,
    });
  }
  const names = [...types.values()].map(({ name }) => name);
  if (file === undefined && (await hasTypes(db))) {
    const { message, code, next } = new PgfreshError('PGF_CONFIG_ABSENT', { problem: 'no data type can be refreshed' });
    return [{ name: 'worker', state: 'warning', detail: message, code, next }];
  }
  const detail = names.length === 0 ? 'no data type has request, schema and rows' : `can refresh ${names.join(', ')}`;
  return [{ name: 'worker', state: 'ok', detail }, ...findings];
}

async function hasTypes(db: Queryable): Promise<boolean> {
  return (await db.query('select from pgfresh.data_type_registry limit 1')).length > 0;
}
