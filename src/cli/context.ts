import type { Command } from 'commander';
import { loadConfig, settingNames, type LoadOptions, type ResolvedConfig, type SettingName } from '../config/index.ts';
import { Connection, pendingMigrations, readSqlFiles, type Queryable } from '../database/index.ts';
import { PgfreshError } from '../errors/index.ts';
import { Events } from '../events/index.ts';
import { thenStop } from '../lifecycle/index.ts';
import { isUncreated, sentenceOf, warnOfMisspelt } from '../watch/index.ts';
import { Output } from './output.ts';

/** What every command gets. */
export interface CommandContext {
  readonly output: Output;
  readonly config: () => Promise<ResolvedConfig>;
  readonly events: Events;
}

interface GlobalOptions extends Partial<Record<SettingName, string>> {
  config?: string;
  json?: boolean;
  debug?: boolean;
}

/** Uses the configuration of the command line, unless the command sets its own. */
export function contextOf(
  command: Command,
  given: Partial<Pick<LoadOptions, 'configFile' | 'env'>> = {},
): CommandContext {
  const options = command.optsWithGlobals<GlobalOptions>();
  const flags = Object.fromEntries(
    settingNames.flatMap((name) => (options[name] === undefined ? [] : [[name, options[name]]])),
  );
  return {
    output: new Output(options),
    events: new Events(),
    config: () => loadConfig({ folder: process.cwd(), configFile: options.config, flags, env: process.env, ...given }),
  };
}

/** Runs a command with a database connection. Throws if the database does not exist or pgfresh is not installed. */
export async function withDatabase<T>(
  context: CommandContext,
  duty: string,
  work: (connection: Connection) => Promise<T>,
): Promise<T> {
  const { settings } = await context.config();
  if (await isUncreated(settings)) throw new PgfreshError('PGF_NOTHING_YET', { folder: settings.dataDir });
  return withAnyDatabase(context, duty, async (connection) => {
    await requireInstalled(connection.database);
    return work(connection);
  });
}

/** The same, for a command that installs pgfresh. Creates an embedded database that does not exist yet. */
export async function withAnyDatabase<T>(
  context: CommandContext,
  duty: string,
  work: (connection: Connection) => Promise<T>,
): Promise<T> {
  const { settings, misspelt } = await context.config();
  if (settings.logLevel !== 'silent') hintAtEvents(context);
  warnOfMisspelt(context.events, misspelt);
  const connection = new Connection({ settings, events: context.events, duty, share: true });
  const done = connection.start().then(() => work(connection));
  return thenStop(done, () => connection.stop());
}

/** Like `withDatabase`, for a command that only reads: an embedded database that does not exist yet is empty to it. */
export async function lookAtDatabase<T>(
  context: CommandContext,
  duty: string,
  look: (database: Queryable) => Promise<T>,
): Promise<T> {
  return lookAtAnyDatabase(context, duty, async (database) => {
    await requireInstalled(database);
    return look(database);
  });
}

/** The same, for a command that can also read a database without pgfresh. */
export async function lookAtAnyDatabase<T>(
  context: CommandContext,
  duty: string,
  look: (database: Queryable) => Promise<T>,
): Promise<T> {
  const { settings } = await context.config();
  if (!(await isUncreated(settings))) return withAnyDatabase(context, duty, ({ database }) => look(database));
  if (settings.logLevel !== 'silent') {
    context.output.hint('The embedded PostgreSQL is not created yet; "pgfresh dev" creates it.');
  }
  return look({ query: async () => [] });
}

async function requireInstalled(database: Queryable): Promise<void> {
  const [table] = await database.query<{ missing: boolean }>(
    `select to_regclass('pgfresh.data_type_registry') is null as missing`,
  );
  if (!table?.missing) return;
  const { length: count } = await pendingMigrations(database, await readSqlFiles());
  throw new PgfreshError('PGF_MIGRATION_PENDING', { count });
}

// Such a command writes no log, but still prints warnings and what takes a while.
function hintAtEvents({ events, output }: CommandContext): void {
  events.subscribe((event) => {
    if (event.type === 'warning' || event.type === 'database.starting') output.hint(sentenceOf(event).text);
  });
}
