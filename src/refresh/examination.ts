import { readLoginRoles, type Queryable } from '../database/index.ts';
import { PgfreshError } from '../errors/index.ts';
import { didYouMean } from '../registry/index.ts';
import { writeProblems } from './written-columns.ts';
import { readCatalog, type Catalog, type Fetchers } from './catalog.ts';

/** The result of one check of the fetchers, shown by `pgfresh check`. */
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

/** Which data types this configuration can refresh, and what blocks others that it has fetchers for. */
export async function examineFetchers(
  db: Queryable,
  { sources, dataTypes = [], file }: Configured,
): Promise<RefreshFinding[]> {
  // Logins of other roles write no tables.
  const isWorker = (await readLoginRoles(db)).roles.includes('worker');
  const { types, problems, fetchers, foreign } = await readCatalog(db, { sources, dataTypes }, { writes: isWorker });
  const findings = problems.map(({ type, problem, next, code }): RefreshFinding => {
    return { name: `data type ${type}`, state: 'fatal', detail: problem, code, next };
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
  // Types with a row schema are compared with their table elsewhere.
  for (const type of [...types.values()].filter(({ fetcher }) => !fetcher.row)) {
    for (const { state, problem, next } of writeProblems(type))
      findings.push({ name: `data type ${type.name}`, state, detail: problem, code: 'PGF_ROW_MISMATCH', next });
  }
  const names = [...types.values()].map(({ name }) => name);
  const missing = await unserved(db, foreign, fetchers);
  if (file === undefined && (await hasTypes(db))) {
    const served = await servedTypes(db);
    const problem = served.length === 0 ? 'no data type can be refreshed' : 'nothing can be refreshed from here';
    const { message, code, next } = new PgfreshError('PGF_CONFIG_ABSENT', { problem });
    if (served.length === 0) return [{ name: 'worker', state: 'warning', detail: message, code, next }];
    const detail = `the workers that run refresh ${served.join(', ')}. ${message}`;
    return [{ name: 'worker', state: 'ok', detail, code, next }, ...missing];
  }
  const whose = isWorker ? '' : ', with a login that has the role pgfresh_worker';
  const detail =
    names.length === 0 ? 'no data type has request, schema and rows' : `can refresh ${names.join(', ')}${whose}`;
  return [{ name: 'worker', state: 'ok', detail }, ...findings, ...missing];
}

/** Data types that neither this configuration nor a running worker can fetch. */
async function unserved(
  db: Queryable,
  foreign: Catalog['foreign'],
  fetchers: readonly string[],
): Promise<RefreshFinding[]> {
  const types = await db.query<{ type: string; workers: boolean }>(
    'select data_type as type, workers from pgfresh_engine.unserved_types()',
  );
  return types.flatMap(({ type, workers }): RefreshFinding[] => {
    const fetcher = foreign.find((one) => one.type === type)?.fetcher;
    if (fetcher === undefined) return [];
    const hint = didYouMean(fetcher, fetchers);
    return [
      {
        name: `data type ${type}`,
        // Without a likely typo, and with no worker running, a worker with another configuration may have the fetcher.
        state: workers || hint !== '' ? 'fatal' : 'warning',
        detail: `no worker can fetch it: no data type here with request, schema and rows has the fetcher "${fetcher}"${hint}`,
        code: 'PGF_FETCHER_MISSING',
        next: 'Correct the fetcher of the data type, or start a worker whose configuration has it.',
      },
    ];
  });
}

/** The data types that running workers refresh. */
async function servedTypes(db: Queryable): Promise<string[]> {
  const types = await db.query<{ name: string }>(
    `select data_type as name from pgfresh.data_type_registry
     where data_type not in (select u.data_type from pgfresh_engine.unserved_types() as u) order by 1`,
  );
  return types.map(({ name }) => name);
}

async function hasTypes(db: Queryable): Promise<boolean> {
  return (await db.query('select from pgfresh.data_type_registry limit 1')).length > 0;
}
