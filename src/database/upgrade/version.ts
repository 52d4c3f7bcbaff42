import { PgfreshError } from '../../errors/index.ts';
import type { Queryable } from '../query.ts';
import type { Protocol } from '../release.ts';

/** A build: a package version and its functions. */
export interface Build {
  readonly version: string;
  readonly protocol: Protocol;
  /** A hash of all functions. Two builds of one version may differ in it. */
  readonly functions: string;
}

export interface Installation extends Omit<Build, 'protocol'> {
  readonly installed_at: Date;
}

/** Installed builds, latest first. None for a login that may not read them, and so not install any. */
export async function readInstallations(db: Queryable): Promise<Installation[]> {
  const [table] = await db.query<{ there: boolean }>(
    `select exists (
       select from pg_catalog.pg_class join pg_catalog.pg_namespace as schema on schema.oid = relnamespace
       where nspname = 'pgfresh_engine' and relname = 'installation' and relkind = 'r' and not relrowsecurity
         and has_schema_privilege(schema.oid, 'usage') and has_table_privilege(pg_class.oid, 'select')) as there`,
  );
  if (!table?.there) return [];
  return db.query<Installation>(
    'select version, functions, installed_at from only pgfresh_engine.installation order by id desc',
  );
}

/**
 * Refuses a build older than the installed one. A running process has found its own functions installed
 * once; so of two builds of one version, the older is the one recorded as replaced.
 */
export function refuseOlder(build: Build, installations: readonly Installation[]): void {
  const [latest, ...earlier] = installations;
  if (!latest || latest.functions === build.functions) return;
  const order = compareVersions(build.version, latest.version);
  const isReplaced = earlier.some(
    ({ functions, version }) => functions === build.functions && version === build.version,
  );
  if (order < 0 || (order === 0 && isReplaced)) throw replacedBy(build, latest);
}

/** Why a process with this build cannot go on: an upgrade removed functions that it calls, or waits for it to stop. */
export async function readReplacement(db: Queryable, build: Build): Promise<PgfreshError | undefined> {
  const [latest] = await db.query<Installation>(
    `select version, functions, installed_at from only pgfresh_engine.installation
     where breaks and id > (select max(id) from only pgfresh_engine.installation where functions = $1::text)
     order by id desc limit 1`,
    [build.functions],
  );
  if (latest) return replacedBy(build, latest);
  const { own } = build.protocol;
  const [row] = await db.query<{ least: number }>('select pgfresh_engine.least_protocol() as least');
  if (row!.least <= own) return undefined;
  const problem = `This process uses protocol ${own}, and the database requires protocol ${row!.least} or later`;
  return new PgfreshError('PGF_PROCESS_OUTDATED', { problem });
}

function replacedBy({ version }: Build, latest: Installation): PgfreshError {
  return version === latest.version
    ? new PgfreshError('PGF_BUILD_REPLACED', { version, at: latest.installed_at.toISOString() })
    : new PgfreshError('PGF_MIGRATION_NEWER', { found: `version ${latest.version}`, known: `version ${version}` });
}

/** Negative if the first is older. Follows semver.org, without build metadata. */
export function compareVersions(one: string, other: string): number {
  const [core, pre] = splitVersion(one);
  const [otherCore, otherPre] = splitVersion(other);
  return (
    compareParts(core, otherCore) ||
    // 1.0.0 is newer than 1.0.0-beta.
    Number(pre.length === 0) - Number(otherPre.length === 0) ||
    compareParts(pre, otherPre)
  );
}

function splitVersion(version: string): [string[], string[]] {
  const [core = '', ...pre] = version.split('+', 1)[0]!.split('-');
  return [core.split('.'), pre.join('-').split('.').filter(Boolean)];
}

function compareParts(one: readonly string[], other: readonly string[]): number {
  for (let place = 0; place < Math.max(one.length, other.length); place++) {
    const [a, b] = [one[place], other[place]];
    if (a === b) continue;
    if (a === undefined || b === undefined) return a === undefined ? -1 : 1;
    const [isNumber, otherIsNumber] = [/^\d+$/.test(a), /^\d+$/.test(b)];
    if (isNumber !== otherIsNumber) return isNumber ? -1 : 1;
    return isNumber ? Number(a) - Number(b) : a < b ? -1 : 1;
  }
  return 0;
}
