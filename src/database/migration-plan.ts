import { PgfreshError } from '../errors/index.ts';
import type { SqlFile, SqlFiles } from './migration-files.ts';

/** What a database has recorded about its own history. */
export interface AppliedFile {
  readonly kind: 'migration' | 'functions';
  readonly name: string;
  readonly hash: string;
  readonly applied_at: Date;
}

export interface MigrationStep {
  readonly kind: AppliedFile['kind'];
  readonly file: SqlFile;
}

/**
 * Files that this database has not seen, in order: migrations, then functions files with new text, or all of them if
 * their grants are lost. Refuses a history that is unknown to this code or was rewritten.
 */
export function planMigration(files: SqlFiles, applied: readonly AppliedFile[], rightsLost = false): MigrationStep[] {
  const past = new Map(applied.filter((entry) => entry.kind === 'migration').map((entry) => [entry.name, entry]));
  refuseUnknownPast(files.migrations, [...past.keys()]);
  for (const file of files.migrations) {
    const seen = past.get(file.name);
    if (seen && seen.hash !== file.hash) throw new PgfreshError('PGF_MIGRATION_CHANGED', { migration: file.name });
  }
  const hashes = new Map(
    applied.filter((entry) => entry.kind === 'functions').map((entry) => [entry.name, entry.hash]),
  );
  const migrations = files.migrations.filter((file) => !past.has(file.name));
  const known = new Set(files.functions.map(({ name }) => name));
  // Objects of a removed file have to be dropped.
  const isFileGone = [...hashes.keys()].some((name) => !known.has(name));
  const functions = files.functions.filter((file) => rightsLost || isFileGone || hashes.get(file.name) !== file.hash);
  return [...migrations.map(migrationStep), ...functions.map(functionsStep)];
}

/** What a migration applies if anything is missing: all functions files, because each grants its own rights anew. */
export function stepsFor(
  files: SqlFiles,
  missing: readonly MigrationStep[],
): Record<AppliedFile['kind'], MigrationStep[]> {
  return {
    migration: missing.filter(({ kind }) => kind === 'migration'),
    functions: missing.length > 0 ? files.functions.map(functionsStep) : [],
  };
}

const migrationStep = (file: SqlFile): MigrationStep => ({ kind: 'migration', file });
const functionsStep = (file: SqlFile): MigrationStep => ({ kind: 'functions', file });

function refuseUnknownPast(known: readonly SqlFile[], applied: readonly string[]): void {
  const names = new Set(known.map((file) => file.name));
  const unknown = applied.filter((name) => !names.has(name)).toSorted();
  const last = known.at(-1)?.name ?? 'none';
  if (unknown.length === 0) return;
  const found = unknown.at(-1)!;
  if (found > last) throw new PgfreshError('PGF_MIGRATION_NEWER', { found, known: last });
  // One number with two names: the file was renamed, which is a change like any other.
  throw new PgfreshError('PGF_MIGRATION_CHANGED', { migration: found });
}
