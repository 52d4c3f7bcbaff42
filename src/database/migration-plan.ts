import { PgfreshError } from '../errors/index.ts';
import type { SqlFile, SqlFiles } from './migration-files.ts';

/** What a database says of its own past. */
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
 * What is left to do, in order: migrations never seen, then all files of functions if anything is new: the rights that an
 * earlier version gave end with the first of them, and each says anew who may call what it makes.
 * Refuses a past that this code does not know or that was rewritten since.
 */
export function planMigration(files: SqlFiles, applied: readonly AppliedFile[]): MigrationStep[] {
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
  const isNew = (file: SqlFile): boolean => hashes.get(file.name) !== file.hash;
  const functions = migrations.length > 0 || files.functions.some(isNew) ? files.functions : [];
  return [
    ...migrations.map((file) => ({ kind: 'migration' as const, file })),
    ...functions.map((file) => ({ kind: 'functions' as const, file })),
  ];
}

function refuseUnknownPast(known: readonly SqlFile[], applied: readonly string[]): void {
  const names = new Set(known.map((file) => file.name));
  const unknown = applied.filter((name) => !names.has(name)).toSorted();
  const last = known.at(-1)?.name ?? 'none';
  if (unknown.length === 0) return;
  const found = unknown.at(-1)!;
  if (found > last) throw new PgfreshError('PGF_MIGRATION_NEWER', { found, known: last });
  // A number that both know under different names: the file was renamed, which is a change like any other.
  throw new PgfreshError('PGF_MIGRATION_CHANGED', { migration: found });
}
