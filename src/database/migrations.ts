import { createHash } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import pg from 'pg';
import { PgfreshError, problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { failpoint } from '../lifecycle/index.ts';
import type { Database } from './database.ts';
import { failureOf, type Failure } from './failure.ts';
import type { SqlFiles } from './migration-files.ts';
import { migrationSettings, lockTimeoutMs, migrationLock, transactLocked } from './migration-lock.ts';
import { planMigration, stepsFor, type AppliedFile, type MigrationStep } from './migration-plan.ts';
import type { Queryable } from './query.ts';
import { followRestore, hasLostRights } from './restored.ts';
import { lacksReading, requireCreate, requireRoles } from './rights.ts';
import { foreignObjectGuard, requireOwnSchema } from './schema-owner.ts';
import {
  dependantsScript,
  drained,
  dropDependants,
  dropObjects,
  manifestTables,
  noChanges,
  noteOwners,
  numberedDrops,
  objectGuard,
  previewDependantViews,
  previewPlan,
  readDependantViews,
  readInstallations,
  readPlan,
  readReplacement,
  recordBuild,
  recordOwners,
  recreateDependants,
  refuseOlder,
  requireObjects,
  resetGrants,
  type Build,
  type Dependant,
  type Installation,
  type NumberedDrop,
  type ObjectChanges,
} from './upgrade/index.ts';

// "if not exists" would need the right to create schemas even if there is nothing to create.
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
comment on table pgfresh.migrations is 'Which of pgfresh''s SQL files this database has seen, and with what text.';
${manifestTables}`;

const record = `insert into pgfresh.migrations (kind, name, hash) values ($1::text, $2::text, $3::text)
on conflict (kind, name) do update set hash = excluded.hash, applied_at = clock_timestamp()`;

const forgetFiles = `delete from pgfresh.migrations where kind = 'functions' and name <> all ($1::text[])`;

export interface MigrateOptions {
  files: SqlFiles;
  events: Events;
  /** How long to wait for another process that is migrating, and for locks. */
  lockWaitMs?: number;
  /** How long to wait for old workers' jobs if the upgrade removes functions they need; 0: do not wait. */
  drainMs?: number;
  /** Drops users' views that are in the way, and recreates them afterwards. */
  recreateDependants?: boolean;
}

/** What a migration did. */
export interface Migration {
  /** The applied files, in order; none if nothing was missing. */
  readonly applied: readonly MigrationStep[];
  readonly objects: ObjectChanges;
}

/** Brings the database up to date with the files, in one transaction, one process at a time. */
export async function migrate(database: Database, options: MigrateOptions): Promise<Migration> {
  const { files, events, lockWaitMs, drainMs = 0, recreateDependants: recreates = false } = options;
  const since = performance.now();
  const run = (): Promise<Done> =>
    transactLocked(database, 'migrate', (tx) => migrateLocked(tx, files, recreates), lockWaitMs);
  const isBreaking = drainMs > 0 && (await takesAway(database, files, recreates, lockWaitMs));
  const migration = isBreaking ? await drained(database, drainMs, run) : await run();
  // Only now: a transaction may be repeated or rolled back.
  for (const { kind, file, ms } of migration.applied) {
    events.emit({ type: 'migration.applied', name: `${kind}/${file.name}`, ms });
  }
  if (migration.applied.length > 0) {
    const { length: migrations } = migration.applied.filter(({ kind }) => kind === 'migration');
    const functions = migration.applied.length - migrations;
    events.emit({ type: 'schema.migrated', migrations, functions, ms: performance.now() - since });
  }
  return migration;
}

/** Whether processes of the installed version would lose something they need. */
async function takesAway(
  database: Database,
  files: SqlFiles,
  recreates: boolean,
  lockWaitMs: number | undefined,
): Promise<boolean> {
  const look = async (tx: Queryable): Promise<MigrationPreview> => {
    await requireOwnSchema(tx);
    if ((await pendingMigrations(tx, files)).length > 0) await requireCreate(tx);
    return previewMigration(tx, files, recreates);
  };
  const { dropped, replaced } = (await transactLocked(database, 'migrate', look, lockWaitMs)).objects;
  return [...dropped, ...replaced].some((name) => /^(function|view) /.test(name));
}

/** Files that the database has not seen. Refuses a database that is newer than they are. */
export async function pendingMigrations(database: Queryable, files: SqlFiles): Promise<readonly MigrationStep[]> {
  return (await lookAt(database, files)).missing;
}

interface Look {
  readonly missing: readonly MigrationStep[];
  /** Whether pgfresh was installed before. */
  readonly isUpgrade: boolean;
  readonly installed: Installation | undefined;
}

async function lookAt(database: Queryable, files: SqlFiles): Promise<Look> {
  const seen = await appliedFiles(database);
  const missing = planMigration(files, seen, seen.length > 0 && (await hasLostRights(database)));
  const installations = missing.length > 0 ? await readInstallations(database) : [];
  refuseOlder(buildOf(files), installations);
  return { missing, isUpgrade: missing.length > 0 && seen.length > 0, installed: installations[0] };
}

/** Why a process with these files cannot go on, if a later upgrade removed functions that it calls. */
export function findReplacement(database: Queryable, files: SqlFiles): Promise<PgfreshError | undefined> {
  return readReplacement(database, buildOf(files));
}

export interface MigrationPreview extends Pick<Migration, 'objects'> {
  readonly pending: readonly MigrationStep[];
  /** Whether pgfresh was installed before. */
  readonly isUpgrade: boolean;
  /** The hash of the installed functions. */
  readonly installed: string | null;
}

/** What `migrate` would do. Changes to objects are as known before its numbered files are applied. */
export async function previewMigration(
  database: Queryable,
  files: SqlFiles,
  recreates = false,
): Promise<MigrationPreview> {
  const { missing, isUpgrade, installed } = await lookAt(database, files);
  const preview = { pending: missing, isUpgrade, installed: installed?.functions ?? null, objects: noChanges };
  if (!isUpgrade) return preview;
  const drops = numberedDrops(stepsFor(files, missing).migration.map(({ file }) => file));
  return { ...preview, objects: await previewPlan(database, files.manifests, drops, recreates) };
}

/** How to drop users' views that are in the way of the upgrade, and recreate them. */
export async function dependantsOf(database: Queryable, files: SqlFiles): Promise<string> {
  const { missing } = await lookAt(database, files);
  const drops = numberedDrops(stepsFor(files, missing).migration.map(({ file }) => file));
  return dependantsScript(await previewDependantViews(database, files.manifests, drops));
}

/** The whole upgrade as a script that a DBA can read and run with psql. */
export function migrationScript(files: SqlFiles, { pending, isUpgrade, installed }: MigrationPreview): string {
  const { migration, functions } = stepsFor(files, pending);
  const applied = ({ kind, file }: MigrationStep): string =>
    `-- ${kind} ${file.name}\n${file.text.trimEnd().replace(/;?$/, ';')}\n\n${fillIn(record, [kind, file.name, file.hash])};\n`;
  const build = recordedBuild(files);
  const parts = [
    stateGuard(installed),
    noteOwners(files.manifests),
    ...migration.map(applied),
    `${dropObjects(files.manifests)};`,
    resetGrants,
    ...functions.map(applied),
    ...(isUpgrade ? [objectGuard(files.manifests)] : []),
    `${fillIn(recordBuild, build)};`,
    recordOwners,
    `${fillIn(forgetFiles, [namesOf(files)])};`,
  ];
  return [
    '\\set ON_ERROR_STOP on',
    'begin;',
    `${migrationSettings};`,
    `select pg_advisory_xact_lock(${migrationLock});`,
    `set local lock_timeout = ${lockTimeoutMs};`,
    foreignObjectGuard,
    bookkeeping,
    ...(pending.length > 0 ? parts : []),
    'commit;',
    '',
  ].join('\n\n');
}

/** What the database has seen so far; nothing if pgfresh was never installed. */
export async function appliedFiles(database: Queryable): Promise<AppliedFile[]> {
  // Only from a table: reading a view, or a table with row security, would run its owner's code.
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

interface Done extends Migration {
  readonly applied: readonly AppliedStep[];
}

async function migrateLocked(tx: Queryable, files: SqlFiles, recreates: boolean): Promise<Done> {
  await requireOwnSchema(tx);
  const { missing, isUpgrade } = await lookAt(tx, files);
  if (missing.length === 0) {
    await followRestore(tx);
    return { applied: [], objects: noChanges };
  }
  const { migration, functions } = stepsFor(files, missing);
  await requireCreate(tx);
  if (functions.some(({ file }) => file.name === 'before')) await requireRoles(tx);
  await tx.query(bookkeeping);
  await tx.query(noteOwners(files.manifests));
  const dependants: Dependant[] = [];
  const plan = async (drops?: NumberedDrop[]): Promise<ObjectChanges> => {
    if (!isUpgrade) return noChanges;
    const found = recreates ? await readDependantViews(tx, files.manifests, drops) : [];
    await dropDependants(tx, found);
    dependants.push(...found);
    return readPlan(tx, files.manifests, drops);
  };
  // Name users' objects that are in the way before a numbered file fails on them.
  await plan(numberedDrops(migration.map(({ file }) => file)));
  const applied: AppliedStep[] = [];
  for (const step of migration) applied.push(await applyStep(tx, step));
  const objects = await plan();
  await tx.query(dropObjects(files.manifests));
  await tx.query(resetGrants);
  for (const step of functions) applied.push(await applyStep(tx, step));
  if (isUpgrade) await requireObjects(tx, files.manifests);
  await tx.query(recordBuild, recordedBuild(files));
  await tx.query(recordOwners);
  await tx.query(forgetFiles, [namesOf(files)]);
  await recreateDependants(tx, dependants);
  await followRestore(tx);
  await failpoint('migrate.before-commit');
  return { applied, objects };
}

/** PostgreSQL's code for an object that others depend on. */
const dependentObjects = '2BP01';

/** Failures for which the whole transaction is retried. */
const passing: readonly Failure[] = ['deadlock', 'lock_timeout'];

async function applyStep(tx: Queryable, step: MigrationStep): Promise<AppliedStep> {
  const { kind, file } = step;
  const started = performance.now();
  try {
    await tx.query(file.text);
  } catch (error) {
    if (error instanceof PgfreshError || passing.includes(failureOf(error))) throw error;
    const { code, detail } = error as { code?: unknown; detail?: unknown };
    // Dependencies that the plan did not see.
    if (code === dependentObjects && typeof detail === 'string')
      throw new PgfreshError('PGF_UPGRADE_BLOCKED', { names: detail.replaceAll('\n', ', ') }, { cause: error });
    throw new PgfreshError(
      'PGF_MIGRATION_FAILED',
      { migration: file.name, problem: problemOf(error) },
      { cause: error },
    );
  }
  await tx.query(record, [kind, file.name, file.hash]);
  return { ...step, ms: performance.now() - started };
}

function buildOf({ version, protocol, functions }: SqlFiles): Build {
  const hash = createHash('sha256').update(functions.map((file) => `${file.name} ${file.hash}\n`).join(''));
  return { version, protocol, functions: hash.digest('hex') };
}

/** What `recordBuild` writes. */
function recordedBuild(files: SqlFiles): string[] {
  const { version, functions, protocol } = buildOf(files);
  return [version, functions, String(protocol.own), String(protocol.least)];
}

function namesOf({ functions }: SqlFiles): string[] {
  return functions.map(({ name }) => name);
}

/** For a script that runs later than it was printed. */
function stateGuard(installed: string | null): string {
  return `do $guard$
begin
  if (select functions from pgfresh_engine.installation order by id desc limit 1)
      is distinct from ${installed === null ? 'null' : pg.escapeLiteral(installed)} then
    raise exception 'PGF_MIGRATION_NEWER: this database was migrated since the script was printed. Print it again.';
  end if;
end
$guard$;`;
}

function fillIn(statement: string, values: readonly (string | string[])[]): string {
  const literal = (value: string | string[]): string =>
    typeof value === 'string' ? pg.escapeLiteral(value) : `array[${value.map(literal).join(', ')}]`;
  return statement.replace(/\$(\d)/g, (_, number: string) => literal(values[Number(number) - 1]!));
}
