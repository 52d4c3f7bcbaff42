import type { Queryable } from '../database/index.ts';
import { readCatalog, type Fetchers } from './catalog.ts';

/** One check of what can be fetched; `pgfresh check` shows it beside its own. */
interface RefreshFinding {
  readonly name: string;
  readonly state: 'ok' | 'fatal';
  readonly detail: string;
  readonly code?: string;
  readonly next?: string;
}

/** Which data types this configuration can refresh, and what is in the way of the others that it has fetchers for. */
export async function examineFetchers(
  db: Queryable,
  { sources, dataTypes = [] }: { sources: Fetchers['sources']; dataTypes?: Fetchers['dataTypes'] | undefined },
): Promise<RefreshFinding[]> {
  const { types, problems } = await readCatalog(db, { sources, dataTypes });
  const findings = problems.map(({ type, problem, next }): RefreshFinding => {
    return { name: `data type ${type}`, state: 'fatal', detail: problem, code: 'PGF_FETCHER_MISSING', next };
  });
  const names = [...types.values()].map(({ name }) => name);
  const detail = names.length === 0 ? 'no data type has request, schema and rows' : `can refresh ${names.join(', ')}`;
  return [{ name: 'worker', state: 'ok', detail }, ...findings];
}
