import type { ResolvedConfig } from '../config/index.ts';
import type { Queryable } from '../database/index.ts';
import { PgfreshError } from '../errors/index.ts';
import { readCatalog, type RefreshType } from '../refresh/index.ts';
import { listTypes, unknownType } from '../registry/index.ts';

/** A data type that this configuration can fetch, or an error that says why it cannot. */
export async function fetchedType(
  database: Queryable,
  { sources, dataTypes = [], file }: ResolvedConfig,
  name: string,
): Promise<{ type: RefreshType; now: Date }> {
  const { types, problems, now } = await readCatalog(database, { sources, dataTypes });
  const type = [...types.values()].find((one) => one.name === name);
  if (type) return { type, now };
  const problem = problems.find((one) => one.type === name);
  if (problem) throw new PgfreshError('PGF_FETCHER_MISSING', problem);
  const registered = await listTypes(database);
  const row = registered.find((one) => one.data_type === name);
  if (!row) {
    const known = registered.map((one) => one.data_type);
    if (!dataTypes.some((one) => one.name === name)) throw unknownType(name, known);
    const next = 'Run "pgfresh migrate", which registers it.';
    throw new PgfreshError('PGF_FETCHER_MISSING', { type: name, problem: 'the database does not know it yet', next });
  }
  if (file === undefined)
    throw new PgfreshError('PGF_CONFIG_ABSENT', { problem: `the data type "${name}" cannot be fetched` });
  throw new PgfreshError('PGF_FETCHER_MISSING', {
    type: name,
    problem: `no data type here has the fetcher "${String(row.fetcher)}" with request, schema and rows`,
    next: 'Add them to it.',
  });
}
