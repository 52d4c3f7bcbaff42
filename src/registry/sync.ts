import type { Definitions } from '../config/index.ts';
import { failureOf, type Database, type Failure, type Queryable } from '../database/index.ts';
import { PgfreshError, problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { parameter, sourceColumns, typeColumns, type Value } from './columns.ts';
import { diffRegistry, isEmpty, namesOf, type RegistryDiff } from './diff.ts';
import { readRegistry } from './rows.ts';

type Wanted = Definitions & { readonly file?: string | undefined };

/** What `syncRegistry` would change now. */
export async function previewSync(database: Queryable, wanted: Wanted): Promise<RegistryDiff> {
  return diffRegistry(wanted, await readRegistry(database));
}

interface SyncOptions {
  /**
   * For a starting process, which runs with what is registered: skips data types that the database refuses, each with
   * a warning, instead of failing. One that is already registered stays as it is. If all are refused, or the login may
   * not write the registry, nothing changes except for a warning.
   */
  readonly skipRefused?: boolean;
}

/** Makes the registry match the configuration, in one transaction. Writes nothing if they already match. */
export async function syncRegistry(
  database: Database,
  wanted: Wanted,
  events: Events,
  { skipRefused = false }: SyncOptions = {},
): Promise<RegistryDiff> {
  // Compare first without a lock: most starts have nothing to write, and not every login may.
  const preview = await previewSync(database, wanted);
  if (isEmpty(preview)) return preview;
  const refused: Refused = [];
  let diff = nothing;
  try {
    diff = await apply(database, wanted, skipRefused ? refused : undefined);
  } catch (error) {
    if (!skipRefused || !(error instanceof PgfreshError)) throw error;
    if (error.code === 'PGF_DATABASE_RIGHTS') {
      const message = `The registry differs from the configuration, and this login may not write it: ${namesOf(preview)}`;
      const next = 'Run "pgfresh migrate" as the owner of the schema pgfresh.';
      events.emit({ type: 'warning', code: 'registry_differs', subject: 'registry', message, next });
    } else if (!isRefusal(error)) throw error;
  }
  for (const { values } of refused) {
    const message = `The data type "${values['type']}" was left out: ${values['problem']}`;
    const next = 'Correct the data type or what it names, then run "pgfresh migrate" or start again.';
    events.emit({ type: 'warning', code: 'type_refused', subject: String(values['type']), message, next });
  }
  const { added, changed, removed } = diff.types;
  const sources = diff.sources.added.length + diff.sources.changed.length;
  if (!isEmpty(diff)) {
    const counts = { added: added.length, changed: changed.length, removed: removed.length, sources };
    events.emit({ type: 'registry.synced', ...counts });
  }
  return diff;
}

type Refused = PgfreshError<'PGF_TYPE_REFUSED'>[];

async function apply(database: Database, wanted: Wanted, refused: Refused | undefined): Promise<RegistryDiff> {
  try {
    return await database.transact('sync', (tx) => applyLocked(tx, wanted, refused), { lockTimeoutMs: 10_000 });
  } catch (error) {
    throw failureOf(error) === 'permission' ? await lacksWriting(database, error) : error;
  }
}

/**
 * Locks in the same order as ends of jobs: first users' tables, which get triggers with their data types, then the
 * rows of sources, which every failure and many successes write. Jobs and pairs follow at commit.
 */
async function applyLocked(tx: Queryable, wanted: Wanted, refused: Refused | undefined): Promise<RegistryDiff> {
  // Blocks other syncs and manual changes; readers, including the planner, proceed.
  await tx.query('lock table pgfresh.data_type_registry in share row exclusive mode');
  const diff = diffRegistry(wanted, await readRegistry(tx));
  for (const { row } of diff.sources.added) {
    await nameSynced(tx, Object.keys(row));
    await insert(tx, 'sources', sourceColumns, row);
  }
  await nameSynced(tx, []);
  const types = await applyTypes(tx, wanted, diff, refused);
  await applySources(tx, wanted, diff);
  return { ...diff, types };
}

async function applySources(tx: Queryable, wanted: Wanted, { sources }: RegistryDiff): Promise<void> {
  if (sources.changed.length === 0) return;
  const names = sources.changed.map(({ name }) => name);
  await tx.query('select from pgfresh.sources where name = any ($1::text[]) order by id for no key update', [names]);
  // Compare again, because a setting may have been overridden before its row was locked.
  for (const { name, row } of diffRegistry(wanted, await readRegistry(tx)).sources.changed) {
    await nameSynced(tx, Object.keys(row));
    await update(tx, 'sources', sourceColumns, row, ['name', name]);
  }
  await nameSynced(tx, []);
}

async function applyTypes(
  tx: Queryable,
  { dataTypes = [] }: Wanted,
  diff: RegistryDiff,
  refused: Refused | undefined,
): Promise<RegistryDiff['types']> {
  if (!refused) {
    for (const name of diff.order) await writeType(tx, diff, name);
    await removeTypes(tx, diff.types.removed);
    return diff.types;
  }
  // The transaction may be retried.
  refused.length = 0;
  for (const name of diff.order) {
    await tx.query('savepoint one_type');
    try {
      await writeType(tx, diff, name);
    } catch (error) {
      if (!isRefusal(error)) throw error;
      refused.push(error);
      await tx.query('rollback to savepoint one_type');
    }
    await tx.query('release savepoint one_type');
  }
  const { added, changed, removed } = diff.types;
  // Most likely the wrong database, whose other data types must not be removed.
  if (refused.length > 0 && refused.length === dataTypes.length) throw refused[0]!;
  await removeTypes(tx, removed);
  const isWritten = ({ name }: { name: string }): boolean => !refused.some(({ values }) => values['type'] === name);
  return { added: added.filter(isWritten), changed: changed.filter(isWritten), removed };
}

async function removeTypes(tx: Queryable, names: readonly string[]): Promise<void> {
  await tx.query('delete from pgfresh.data_type_registry where data_type = any ($1::text[])', [names]);
}

const nothing: RegistryDiff = {
  sources: { added: [], changed: [], overridden: [] },
  types: { added: [], changed: [], removed: [] },
  order: [],
};

function isRefusal(error: unknown): error is PgfreshError<'PGF_TYPE_REFUSED'> {
  return error instanceof PgfreshError && error.code === 'PGF_TYPE_REFUSED';
}

/** Tells the sources trigger which columns come from the configuration: other writes are overrides. */
async function nameSynced(tx: Queryable, columns: readonly string[]): Promise<void> {
  await tx.query(`select set_config('pgfresh.sync', $1::text, true)`, [columns.join(',')]);
}

async function writeType(tx: Queryable, { types }: RegistryDiff, name: string): Promise<void> {
  const added = types.added.find((entry) => entry.name === name);
  const row = (added ?? types.changed.find((entry) => entry.name === name))!.row;
  try {
    if (added) await insert(tx, 'data_type_registry', typeColumns, row);
    else await update(tx, 'data_type_registry', typeColumns, row, ['data_type', name]);
  } catch (error) {
    throw refusalOf(name, error);
  }
}

type Columns = Parameters<typeof parameter>[0];

async function insert(tx: Queryable, table: string, columns: Columns, row: object): Promise<void> {
  const names = Object.keys(row);
  const values = names.map((name, index) => parameter(columns, name, index + 1));
  await tx.query(`insert into pgfresh.${table} (${names.join(', ')}) values (${values.join(', ')})`, valuesOf(row));
}

async function update(
  tx: Queryable,
  table: string,
  columns: Columns,
  row: object,
  [key, name]: readonly [string, string],
): Promise<void> {
  // Without the name: writing it, even unchanged, waits for every transaction that refers to the row.
  const { [key]: _, ...set } = row as Record<string, Value>;
  const names = Object.keys(set);
  const changes = names.map((column, index) => `${column} = ${parameter(columns, column, index + 1)}`).join(', ');
  await tx.query(`update pgfresh.${table} set ${changes} where ${key} = $${names.length + 1}::text`, [
    ...valuesOf(set),
    name,
  ]);
}

function valuesOf(row: object): Value[] {
  return Object.values(row) as Value[];
}

// Errors of the table itself name the column, but not the data type.
const refusals: ReadonlySet<Failure> = new Set(['constraint', 'invalid_data', 'foreign_key', 'unique', 'raised']);

function refusalOf(type: string, error: unknown): unknown {
  const ours = error instanceof PgfreshError && error.code === 'PGF_REGISTRY_INVALID';
  if (!ours && !refusals.has(failureOf(error))) return error;
  const said = ours ? error.cause : error;
  const hint =
    typeof said === 'object' && said !== null && 'hint' in said && typeof said.hint === 'string' ? said.hint : '';
  const problem = `${problemOf(error)}.${hint && ` ${hint}`}`;
  return new PgfreshError('PGF_TYPE_REFUSED', { type, problem }, { cause: error });
}

async function lacksWriting(database: Queryable, cause: unknown): Promise<PgfreshError> {
  const [login] = await database.query<{ user: string }>('select current_user as "user"');
  const problem = 'it may not write the registry, which differs from the configuration';
  const who = 'the owner of the schema pgfresh';
  return new PgfreshError('PGF_DATABASE_RIGHTS', { ...login!, problem, who, grant: 'pgfresh migrate' }, { cause });
}
