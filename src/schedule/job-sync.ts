import type { Definitions } from '../config/index.ts';
import { failureOf, type Database, type Failure, type Queryable } from '../database/index.ts';
import { PgfreshError, problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { jobRow, parameter, selectList, sent, valueText, type JobColumn, type JobRow } from './job-row.ts';

/** One column that changes, with its values as people write them. */
interface ColumnChange {
  readonly column: string;
  readonly from: string;
  readonly to: string;
}

interface JobChange {
  readonly name: string;
  readonly row: JobRow;
  readonly changes: readonly ColumnChange[];
}

/** The changes that bring scheduled_jobs in line with the configuration. */
export interface JobDiff {
  readonly added: readonly JobRow[];
  readonly changed: readonly JobChange[];
  /** No longer in the configuration. They are disabled, not removed, to keep their history. */
  readonly disabled: readonly string[];
}

type Wanted = Pick<Definitions, 'jobs'>;

/** What `syncJobs` would do now. */
export async function previewJobs(database: Queryable, { jobs }: Wanted): Promise<JobDiff> {
  const none: JobDiff = { added: [], changed: [], disabled: [] };
  // A configuration that does not mention jobs is not one with none.
  if (!jobs) return none;
  const rows = await readJobs(database);
  const there = new Map(rows.map((row) => [row.name, row]));
  const wanted = jobs.map(jobRow);
  const names = new Set(wanted.map(({ name }) => name));
  for (const { name, managed_by: by } of rows)
    if (by === 'sql' && names.has(name)) throw new PgfreshError('PGF_JOB_MANAGED_BY_SQL', { job: name });
  return {
    added: wanted.filter(({ name }) => !there.has(name)),
    changed: wanted.flatMap((row) => changeOf(row, there.get(row.name))),
    disabled: rows
      .filter((row) => row.managed_by === 'config' && row.enabled === true && !names.has(row.name))
      .map(({ name }) => name),
  };
}

/** Brings scheduled_jobs in line with the configuration, in one transaction. Writes only differences. */
export async function syncJobs(database: Database, wanted: Wanted, events: Events): Promise<JobDiff> {
  // First without a lock: most starts have nothing to write, and not every login may.
  const preview = await previewJobs(database, wanted);
  if (isSettled(preview)) return preview;
  const diff = await apply(database, wanted);
  const { added, changed, disabled } = diff;
  if (!isSettled(diff))
    events.emit({
      type: 'jobs.synced',
      added: added.length,
      changed: changed.length,
      disabled: disabled.length,
    });
  return diff;
}

export function isSettled({ added, changed, disabled }: JobDiff): boolean {
  return added.length + changed.length + disabled.length === 0;
}

/** The registered jobs; none before pgfresh is installed. */
async function readJobs(database: Queryable): Promise<JobRow[]> {
  const [table] = await database.query<{ there: boolean }>(
    `select to_regclass('pgfresh.scheduled_jobs') is not null as there`,
  );
  if (!table?.there) return [];
  return database.query<JobRow>(`select ${selectList} from pgfresh.scheduled_jobs order by name`);
}

async function apply(database: Database, wanted: Wanted): Promise<JobDiff> {
  try {
    return await database.transact('sync of jobs', (tx) => applyLocked(tx, wanted), { lockTimeoutMs: 10_000 });
  } catch (error) {
    throw failureOf(error) === 'permission' ? await lacksWriting(database, error) : error;
  }
}

async function applyLocked(tx: Queryable, wanted: Wanted): Promise<JobDiff> {
  // Blocks other syncs and manual edits; readers, such as the scheduler, go on.
  await tx.query('lock table pgfresh.scheduled_jobs in share row exclusive mode');
  const diff = await previewJobs(tx, wanted);
  for (const row of diff.added) await refusing(row.name, () => insert(tx, row));
  for (const { name, row } of diff.changed) await refusing(name, () => update(tx, row));
  await tx.query('update pgfresh.scheduled_jobs set enabled = false where name = any ($1::text[])', [diff.disabled]);
  return diff;
}

async function insert(tx: Queryable, row: JobRow): Promise<void> {
  const names = Object.keys(row) as JobColumn[];
  const values = names.map((name, index) => parameter(name, index + 1));
  await tx.query(
    `insert into pgfresh.scheduled_jobs (${names.join(', ')}) values (${values.join(', ')})`,
    names.map((name) => sent(name, row[name])),
  );
}

async function update(tx: Queryable, row: JobRow): Promise<void> {
  const names = Object.keys(row) as JobColumn[];
  const set = names.map((name, index) => `${name} = ${parameter(name, index + 1)}`).join(', ');
  await tx.query(
    `update pgfresh.scheduled_jobs set ${set} where name = $1::text`,
    names.map((name) => sent(name, row[name])),
  );
}

function changeOf(row: JobRow, before: JobRow | undefined): JobChange[] {
  if (!before) return [];
  const changes = (Object.keys(row) as JobColumn[]).flatMap((column) => {
    const [from, to] = [valueText(column, before[column]), valueText(column, row[column])];
    return from === to ? [] : [{ column, from, to }];
  });
  return changes.length === 0 ? [] : [{ name: row.name, row, changes }];
}

// Errors of the table name the column, but not the job.
const refusals: ReadonlySet<Failure> = new Set(['constraint', 'invalid_data', 'unique', 'raised', 'other']);

async function refusing(job: string, write: () => Promise<void>): Promise<void> {
  try {
    await write();
  } catch (error) {
    const ours = error instanceof PgfreshError && error.code === 'PGF_JOB_INVALID';
    if (!ours && !refusals.has(failureOf(error))) throw error;
    const { hint } = (ours ? error.cause : error) as { hint?: unknown };
    const problem = `${problemOf(error)}.${typeof hint === 'string' ? ` ${hint}` : ''}`;
    throw new PgfreshError('PGF_JOB_REFUSED', { job, problem }, { cause: error });
  }
}

async function lacksWriting(database: Queryable, cause: unknown): Promise<PgfreshError> {
  const [login] = await database.query<{ user: string }>('select current_user as "user"');
  const problem = 'it may not write scheduled_jobs, which differ from the configuration';
  const who = 'the owner of the schema pgfresh';
  return new PgfreshError('PGF_DATABASE_RIGHTS', { ...login!, problem, who, grant: 'pgfresh migrate' }, { cause });
}
