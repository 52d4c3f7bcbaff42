import { access, constants } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { isLoopback, type ResolvedConfig, type Settings } from '../config/index.ts';
import {
  Connection,
  embeddedStatus,
  pendingMigrations,
  readLoginRoles,
  readSqlFiles,
  requireListening,
  requireMigrationRights,
  type Queryable,
} from '../database/index.ts';
import { asPgfreshError, PgfreshError, problemOf } from '../errors/index.ts';
import { Events } from '../events/index.ts';
import { isUncreated } from './uncreated.ts';

/** The result of one check, with the next step if it failed. */
export interface Finding {
  readonly name: string;
  readonly state: 'ok' | 'warning' | 'fatal';
  readonly detail: string;
  readonly code?: string;
  readonly next?: string;
}

/** Checks of other rooms, by name. */
interface FurtherChecks {
  /** Checks that need no database. */
  readonly configuration?: Readonly<Record<string, (config: ResolvedConfig) => Promise<readonly Finding[]>>>;
  /** Checks of a migrated database. */
  readonly database?: Readonly<
    Record<string, (database: Queryable, config: ResolvedConfig) => Promise<readonly Finding[]>>
  >;
}

/** Checks everything that pgfresh needs to run. Creates nothing and never throws; failures are findings. */
export async function examine(load: () => Promise<ResolvedConfig>, further: FurtherChecks = {}): Promise<Finding[]> {
  const findings: Finding[] = [good('node', `Node.js ${process.version}`)];
  let config: ResolvedConfig;
  try {
    config = await load();
  } catch (error) {
    return [...findings, bad('configuration', error)];
  }
  const { settings } = config;
  findings.push(good('configuration', config.file ?? 'no file; defaults, environment and flags'));
  for (const { message: detail, next } of config.misspelt)
    findings.push({ name: 'environment', state: 'warning', detail, next });
  findings.push(await examineDataDir(settings), examineHttp(settings));
  if (settings.databaseUrl === undefined) findings.push(await examineEmbedded(settings.dataDir));
  const isStuck = findings.some((finding) => finding.state === 'fatal');
  // Failures here do not prevent the checks of the database.
  for (const [name, check] of Object.entries(further.configuration ?? {}))
    findings.push(...(await check(config).catch((error: unknown) => [bad(name, error)])));
  if (isStuck) return findings;
  if (await isUncreated(settings)) {
    return [...findings, good('database', 'not created yet; "pgfresh dev" creates it')];
  }
  return [...findings, ...(await examineDatabase(config, further))];
}

async function examineDataDir({ dataDir, databaseUrl, token }: Settings): Promise<Finding> {
  const name = 'data folder';
  if (databaseUrl !== undefined && token !== undefined) return good(name, 'not needed');
  const folder = resolve(dataDir);
  try {
    await requireWritable(folder);
    return good(name, folder);
  } catch (error) {
    return bad(name, new PgfreshError('PGF_DATA_DIR_UNWRITABLE', { folder, problem: problemOf(error) }));
  }
}

/** A folder that does not exist can be created if its parent is writable. */
async function requireWritable(folder: string): Promise<void> {
  try {
    // The dot makes it fail for files.
    await access(`${folder}/.`, constants.W_OK | constants.X_OK);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    await requireWritable(dirname(folder));
  }
}

function examineHttp({ host, token }: Settings): Finding {
  if (isLoopback(host)) return good('http', `${host}, for this machine only`);
  if (token === undefined) return bad('http', new PgfreshError('PGF_PUBLIC_WITHOUT_TOKEN', { host }));
  return good('http', `${host}, for those who have the token`);
}

async function examineEmbedded(dataDir: string): Promise<Finding> {
  const name = 'embedded PostgreSQL';
  try {
    const { platform, binaries, dataVersion, usedBy, problem } = await embeddedStatus(resolve(dataDir));
    if (problem !== undefined) {
      const error = new PgfreshError('PGF_DATA_DIR_UNWRITABLE', { folder: dataDir, problem });
      return { ...bad(name, error), detail: problem };
    }
    if (!binaries) return bad(name, new PgfreshError('PGF_EMBEDDED_MISSING', { platform }));
    if (dataVersion !== undefined && dataVersion !== String(binaries.major)) {
      const values = { folder: dataDir, found: dataVersion, expected: binaries.major };
      return bad(name, new PgfreshError('PGF_EMBEDDED_OTHER_VERSION', values));
    }
    const libraries = binaries.links === 'present' ? '' : ', its library links are made at the first start';
    const use = usedBy === undefined ? '' : `, in use by process ${usedBy}`;
    return good(name, `version ${binaries.version} for ${platform}${libraries}${use}`);
  } catch (error) {
    return bad(name, error);
  }
}

async function examineDatabase(config: ResolvedConfig, further: FurtherChecks): Promise<Finding[]> {
  const events = new Events();
  const findings: Finding[] = [];
  events.on('warning', ({ message, next }) =>
    findings.push({ name: 'pooler', state: 'warning', detail: message, next }),
  );
  const connection = new Connection({ settings: config.settings, events, duty: 'check', share: true });
  try {
    await connection.start();
    const { address, version, user } = connection.facts;
    findings.unshift(good('database', `PostgreSQL ${version} at ${address}, as ${user}`));
    if (!connection.facts.transactionPooler) findings.push(good('pooler', 'none that shares sessions'));
    findings.push(...(await examineListening(connection.database, config.settings)));
    const pending = await pendingMigrations(connection.database, await readSqlFiles());
    if (pending.length > 0)
      return [...findings, missing(pending.length), ...(await examineMigrator(connection.database))];
    findings.push(good('migrations', 'all applied'), await examineLogin(connection.database));
    for (const [name, check] of Object.entries(further.database ?? {})) {
      const found = check(connection.database, config);
      findings.push(...(await found.catch((error: unknown) => [bad(name, error)])));
    }
  } catch (error) {
    findings.push(bad(findings.some(({ name }) => name === 'database') ? 'migrations' : 'database', error));
  } finally {
    await connection.stop().catch(() => {});
  }
  return findings;
}

async function examineListening(database: Queryable, { listenUrl }: Settings): Promise<Finding[]> {
  if (listenUrl === undefined) return [];
  try {
    await requireListening(database, listenUrl);
    return [good('listening', 'notifications arrive by listenUrl')];
  } catch (error) {
    return [bad('listening', error)];
  }
}

/** Checks the rights that a migration needs, which only the migration itself would reveal otherwise. */
async function examineMigrator(database: Queryable): Promise<Finding[]> {
  try {
    await requireMigrationRights(database);
    return [];
  } catch (error) {
    return [bad('migrations', error)];
  }
}

async function examineLogin(database: Queryable): Promise<Finding> {
  const { user, roles } = await readLoginRoles(database);
  if (roles.length > 0) return good('login', `${user} may run ${roles.join(', ')}`);
  const next = `Run "pgfresh migrate --grants worker=${user}" with the login that owns the schema; other roles: docs/production/deploy.md.`;
  return { name: 'login', state: 'warning', detail: `${user} may run none of the roles`, next };
}

function missing(count: number): Finding {
  return {
    name: 'migrations',
    state: 'warning',
    detail: `${count} of the SQL files ${count === 1 ? 'is' : 'are'} not applied`,
    next: 'Run "pgfresh migrate".',
  };
}

function good(name: string, detail: string): Finding {
  return { name, state: 'ok', detail };
}

function bad(name: string, thrown: unknown): Finding {
  const { code, message, next } = asPgfreshError(thrown);
  return { name, state: 'fatal', detail: message, code, next };
}
