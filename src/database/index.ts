export { Connection } from './connection.ts';
export { makeDataDir } from './data-dir.ts';
export { Database, type DatabaseOptions } from './database.ts';
export { EmbeddedServer, embeddedStatus, runningEmbedded } from './embedded/index.ts';
export { failureOf, isTimeout, type Failure } from './failure.ts';
export { GuestCut } from './guest.ts';
export { requireListening } from './listen-url.ts';
export { Listener } from './listener.ts';
export { readSqlFiles, type SqlFile, type SqlFiles } from './migration-files.ts';
export { type AppliedFile, type MigrationStep } from './migration-plan.ts';
export {
  appliedFiles,
  dependantsOf,
  findReplacement,
  migrate,
  migrationScript,
  pendingMigrations,
  previewMigration,
  type Migration,
} from './migrations.ts';
export { databaseRoles, readLoginRoles, requireLoginRoles, type ProcessRole } from './process-roles.ts';
export { codedOr, type LimitedQueryable, type Queryable, type Statement, type StatementLimits } from './query.ts';
export { protocol, version } from './release.ts';
export { requireMigrationRights } from './rights.ts';
export { type ServerFacts } from './server-facts.ts';
export { storableJson } from './storable-text.ts';
export { type TransactionOptions } from './transaction.ts';
export { manifestText, type ObjectChanges } from './upgrade/index.ts';
export { previewUninstall, uninstall, type UninstallPreview } from './uninstall.ts';
