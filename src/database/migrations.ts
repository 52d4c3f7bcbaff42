import { performance } from 'node:perf_hooks';
import pg from 'pg';
import { PgfreshError, problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { failpoint } from '../lifecycle/index.ts';
import type { Database } from './database.ts';
import { failureOf } from './failure.ts';
import type { SqlFiles } from './migration-files.ts';
import { closedSearchPath, migrationLock, transactLocked } from './migration-lock.ts';
import { planMigration, type AppliedFile, type MigrationStep } from './migration-plan.ts';
import type { Queryable } from './query.ts';
import { lacksReading, requireCreate, requireRoles } from './rights.ts';
import { foreignObjectGuard, requireOwnSchema } from './schema-owner.ts';

// "if not exists" would ask for the right to create schemas even where there is nothing to create.
const bookkeeping = `do $$ begin
  if to_regnamespace('pgfresh') is null then create schema pgfresh; end if;
  if to_regnamespace('pgfresh_engine') is null then create schema pgfresh_engine; end if;
end $$;
create table if not exists pgfresh.migrations (
  kind text not null check (kind in ('migration', 'functions')),
  name text not null,
  hash text not null,
  applied_at timestamptz not null default clock_timestamp(),
  primary key (kind, name)
);
comment on table pgfresh.migrations is 'Which of pgfresh''s SQL files this database has seen, and with what text.';`;

const record = `insert into pgfresh.migrations (kind, name, hash) values ($1::text, $2::text, $3::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp()`;

export interface MigrateOptions {
  files: SqlFiles;
  events: Events;
  /** How long to wait for another process that is migrating. */
  lockWaitMs?: number;
}

/** Brings the database to the state of the files, all in one transaction, one process at a time. */
export async function migrate(database: Database, options: MigrateOptions): Promise<MigrationStep[]> {
  const { files, events, lockWaitMs } = options;
  const since = performance.now();
  const applied = await transactLocked(database, 'migrate', (tx) => migrateLocked(tx, files), lockWaitMs);
  // Only now: a transaction may be repeated, or come to nothing.
  for (const { kind, file, ms } of applied) {
    events.emit({ type: 'migration.applied', name: `${kind}/${file.name}`, ms });
  }
  if (applied.length > 0) {
    const { length: migrations } = applied.filter(({ kind }) => kind === 'migration');
    const functions = applied.length - migrations;
    events.emit({ type: 'schema.migrated', migrations, functions, ms: performance.now() - since });
  }
  return applied;
}

/** What `migrate` would do now. */
export async function pendingMigrations(database: Queryable, files: SqlFiles): Promise<MigrationStep[]> {
  return planMigration(files, await appliedFiles(database));
}

/** The whole upgrade as a script that a DBA can read and run with psql. */
export function migrationScript(steps: readonly MigrationStep[]): string {
  const parts = steps.map(({ kind, file }) => {
    const values = [kind, file.name, file.hash].map((value) => pg.escapeLiteral(value));
    return `-- ${kind} ${file.name}\n${file.text.trimEnd().replace(/;?$/, ';')}\n\n${fillIn(record, values)};\n`;
  });
  return [
    '\\set ON_ERROR_STOP on',
    'begin;',
    `${closedSearchPath};`,
    `select pg_advisory_xact_lock(${migrationLock});`,
    foreignObjectGuard,
    bookkeeping,
    ...parts,
    'commit;',
    '',
  ].join('\n\n');
}

/** What the database has seen so far; nothing where pgfresh was never installed. */
export async function appliedFiles(database: Queryable): Promise<AppliedFile[]> {
  // A table and nothing else: to read a view, or a table with row security, is to run code of its owner.
  const [table] = await database.query<{ user: string }>(`
    select current_user as "user"
    from pg_catalog.pg_class join pg_catalog.pg_namespace as schema on schema.oid = relnamespace
    where nspname = 'pgfresh' and relname = 'migrations' and relkind = 'r' and not relrowsecurity`);
  if (!table) return [];
  try {
    return await database.query<AppliedFile>(
      'select kind, name, hash, applied_at from only pgfresh.migrations order by kind desc, name',
    );
  } catch (error) {
    throw failureOf(error) === 'permission' ? lacksReading(table.user, error) : error;
  }
}

interface AppliedStep extends MigrationStep {
  readonly ms: number;
}

async function migrateLocked(tx: Queryable, files: SqlFiles): Promise<AppliedStep[]> {
  await requireOwnSchema(tx);
  const steps = await pendingMigrations(tx, files);
  if (steps.length === 0) return [];
  await requireCreate(tx);
  if (steps.some(({ file }) => file.name === 'before')) await requireRoles(tx);
  await tx.query(bookkeeping);
  const applied: AppliedStep[] = [];
  for (const step of steps) applied.push(await applyStep(tx, step));
  await failpoint('migrate.before-commit');
  return applied;
}

async function applyStep(tx: Queryable, step: MigrationStep): Promise<AppliedStep> {
  const { kind, file } = step;
  const started = performance.now();
  try {
    await tx.query(file.text);
  } catch (error) {
    if (error instanceof PgfreshError || failureOf(error) === 'deadlock') throw error;
    throw new PgfreshError(
      'PGF_MIGRATION_FAILED',
      { migration: file.name, problem: problemOf(error) },
      { cause: error },
    );
  }
  await tx.query(record, [kind, file.name, file.hash]);
  return { ...step, ms: performance.now() - started };
}

function fillIn(statement: string, literals: readonly string[]): string {
  return statement.replace(/\$(\d)/g, (_, number: string) => literals[Number(number) - 1]!);
}
