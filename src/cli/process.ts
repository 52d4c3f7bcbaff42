import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { styleText } from 'node:util';
import type { ResolvedConfig, Settings } from '../config/index.ts';
import {
  Connection,
  migrate,
  pendingMigrations,
  readSqlFiles,
  requireListening,
  requireLoginRoles,
  type Queryable,
} from '../database/index.ts';
import { PgfreshError, problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { HttpServer } from '../http/index.ts';
import { stopAll, thenStop, type Service } from '../lifecycle/index.ts';
import { syncRegistry } from '../registry/index.ts';
import { syncJobs } from '../schedule/index.ts';
import { Health, logEvents, Metrics, readOverview, recordWarnings, shared } from '../watch/index.ts';
import { warnOfMisspelt, type CommandContext } from './context.ts';
import { DevSupporter } from './dev-supporter.ts';
import { bringRole, roleNames, type Role } from './roles.ts';
import { typeNames, unknownType } from './unknown-type.ts';
import { version } from './version.ts';

interface RunOptions {
  readonly roles: readonly Role[];
  readonly migrate: boolean;
  /** Whether what the configuration starts for development is started too. */
  readonly dev?: boolean;
  /** The data types that a worker is limited to; all that it can fetch if they are left out. */
  readonly types?: readonly string[] | undefined;
}

/** Starts the roles, tells where they are, and stops them cleanly when the process is asked to end. */
export async function runUntilStopped(context: CommandContext, options: RunOptions): Promise<void> {
  const since = performance.now();
  const { events } = context;
  const config = await context.config();
  const stopLog = logEvents(events, logLevelOf(context, config), process.stderr);
  const services: Service[] = [];
  const abandon = (): void => services.forEach((service) => service.abandon());
  const asked = endOfProcess(abandon);
  const starting = startRoles(config, events, options, services, asked.signal);
  const run = async (): Promise<void> => {
    const started = await Promise.race([starting, asked.reason.then(() => undefined)]);
    if (started) {
      const { url, psql, notes } = started;
      events.emit({ type: 'process.started', version, roles: options.roles });
      context.output.result({ version, ready: true, url, psql, roles: options.roles, pid: process.pid, notes }, () =>
        banner(started, options.roles, performance.now() - since),
      );
    }
    events.emit({ type: 'process.stopping', reason: await asked.reason });
  };
  const stopServices = async (): Promise<void> => {
    // A start that is overtaken by the stop may add one more; the second round reports what failed in the first too.
    await stopAll(services).catch(() => {});
    await starting.catch(() => {});
    await stopAll(services);
    events.emit({ type: 'process.stopped' });
  };
  // After a fatal error nothing is certain any more, not even that the stop ends.
  const stop = async (): Promise<void> => {
    const ended = await endsWithin(stopServices(), asked.crashed, config.settings.drainTimeout + stopPatienceMs);
    if (!ended) abandon();
  };
  const ran = run().catch((error: unknown) => {
    asked.crash();
    throw error;
  });
  await thenStop(ran, stop).finally(() => {
    asked.forget();
    stopLog();
  });
}

/** With --debug every step is told, unless a level was chosen. */
function logLevelOf({ output }: CommandContext, { settings, origins }: ResolvedConfig): Settings['logLevel'] {
  return output.debug && origins.logLevel === 'default' ? 'debug' : settings.logLevel;
}

/** How long the stop after a fatal error may take beyond the time for draining. */
const stopPatienceMs = 10_000;

/** Whether the work ends before the limit, which begins with the signal. */
async function endsWithin(work: Promise<void>, begin: AbortSignal, ms: number): Promise<boolean> {
  const { promise: over, resolve } = Promise.withResolvers<false>();
  let timer: NodeJS.Timeout | undefined;
  const start = (): void => void (timer = setTimeout(() => resolve(false), ms));
  if (begin.aborted) start();
  else begin.addEventListener('abort', start, { once: true });
  try {
    return await Promise.race([work.then(() => true), over]);
  } finally {
    begin.removeEventListener('abort', start);
    clearTimeout(timer);
  }
}

interface Started {
  readonly url: string;
  /** Whether there is something at `/`. */
  readonly hasPage: boolean;
  /** How to open the embedded database. */
  readonly psql: string | undefined;
  readonly notes: Readonly<Record<string, string>>;
}

async function startRoles(
  configured: ResolvedConfig,
  events: Events,
  options: RunOptions,
  services: Service[],
  stopping: AbortSignal,
): Promise<Started> {
  const { settings, dev } = configured;
  const metrics = new Metrics(events);
  const health = new Health();
  const connection = new Connection({ settings, events, duty: options.roles.join(',') });
  services.push(connection);
  await connection.start();
  const files = await readSqlFiles();
  if (options.migrate) await migrate(connection.database, { files, events });
  else {
    await requireLoginRoles(connection.database, options.roles);
    await requireMigrated(connection, files);
  }
  recordWarnings(events, connection.database);
  warnOfMisspelt(events, configured.misspelt);
  const supporter = options.dev && dev ? new DevSupporter(configured, dev, connection.url) : undefined;
  if (supporter) services.push(supporter);
  await supporter?.start();
  const config = supporter?.config ?? configured;
  await syncRegistry(connection.database, config, events, { skipRefused: true });
  await syncJobs(connection.database, config, events);
  health.add('database', async () => {
    const [row] = await connection.database.query<{ standby: boolean }>('select pg_is_in_recovery() as standby');
    if (row?.standby) throw new PgfreshError('PGF_DATABASE_STANDBY', { address: connection.facts.address });
    return `PostgreSQL ${connection.facts.version} answers`;
  });
  health.add('migrations', async () => {
    await requireMigrated(connection, files);
    return 'all applied';
  });
  const status = async () => ({
    version,
    roles: options.roles,
    database: connection.facts.address,
    health: await health.report(),
  });
  const { database, url, facts } = connection;
  // The others poll while they cannot listen, and try again.
  if (settings.listenUrl !== undefined && options.roles.includes('gateway'))
    await requireListening(database, settings.listenUrl);
  const listenUrl = settings.listenUrl ?? (facts.transactionPooler ? undefined : url);
  const { types } = options;
  if (types) await requireTypes(database, types);
  const overview = shared(() => readOverview(database));
  // Where the overview is shown anyway: not every login may read it, and once per system is enough.
  if (options.roles.includes('console')) metrics.showPairs(overview);
  const page = supporter?.page;
  const brought = options.roles.map((role) =>
    bringRole(role, { database, url, listenUrl, events, config, types, status, overview, page }),
  );
  const http = new HttpServer({
    settings,
    events,
    health,
    metrics,
    routes: (app) => brought.forEach(({ routes }) => routes?.(app)),
    doors: brought.flatMap(({ door }) => door ?? []),
  });
  const running = [...brought.flatMap(({ service }) => service ?? []), http];
  for (const service of running) {
    // The stop does not know of what is added later, which would begin work while the others end theirs.
    stopping.throwIfAborted();
    services.push(service);
    await service.start();
  }
  await supporter?.ready();
  const psql = settings.databaseUrl === undefined ? psqlOf(url, settings.dataDir) : undefined;
  return { url: http.url, hasPage: options.roles.includes('console'), psql, notes: supporter?.notes ?? {} };
}

async function requireMigrated(connection: Connection, files: Awaited<ReturnType<typeof readSqlFiles>>): Promise<void> {
  const pending = await pendingMigrations(connection.database, files);
  if (pending.length > 0) throw new PgfreshError('PGF_MIGRATION_PENDING', { count: pending.length });
}

/** A worker that is limited to a mistyped name would run and do nothing. */
async function requireTypes(database: Queryable, types: readonly string[]): Promise<void> {
  const known = await typeNames(database);
  for (const type of types) if (!known.includes(type)) throw unknownType(type, known);
}

function banner({ url, hasPage, psql, notes }: Started, roles: readonly Role[], ms: number): string {
  const rows = [
    ...(hasPage ? [['Open', url]] : []),
    ['Health', `${url}/readyz?verbose`],
    ['Metrics', `${url}/metrics`],
    ['Database', psql ?? 'yours, by DATABASE_URL'],
    ...(roles.length === roleNames.length ? [] : [['Roles', roles.join(', ')]]),
    ...Object.entries(notes),
    ['Stop', 'Ctrl-C'],
  ];
  const width = Math.max(...rows.map(([name]) => name!.length));
  const lines = rows.map(([name, value]) => `  ${styleText('gray', name!.padEnd(width))} ${value}`);
  return `\n${styleText('bold', `pgfresh ${version}`)} is ready in ${(ms / 1000).toFixed(1)} s\n\n${lines.join('\n')}\n`;
}

/** A command that opens the embedded database, without its password in the history of the shell. */
function psqlOf(databaseUrl: string, dataDir: string): string {
  const address = new URL(databaseUrl);
  address.password = '';
  return `PGPASSWORD=$(cat ${join(dataDir, 'password')}) psql ${address.href}`;
}

// npm repeats the terminal's Ctrl-C at once; whoever asks again later has lost patience.
const sameAsking = 1_000;

/** A second error, from reading the first, would end the process before anything is stopped. */
function traceOf(error: unknown): string {
  try {
    const stack: unknown = error instanceof Error ? error.stack : undefined;
    return typeof stack === 'string' ? stack : problemOf(error);
  } catch {
    return problemOf(error);
  }
}

/** So many errors that nobody catches are a storm, in which no timer may get its turn. */
const crashLimit = 100;

interface EndOfProcess {
  /** Settles once when the process is asked to end, or has failed. */
  readonly reason: Promise<string>;
  /** Aborted at the same moment. */
  readonly signal: AbortSignal;
  /** Aborted by a fatal error. */
  readonly crashed: AbortSignal;
  crash(): void;
  forget(): void;
}

/** Asking again ends the process at once, clean or not. */
function endOfProcess(abandon: () => void): EndOfProcess {
  const { promise, resolve } = Promise.withResolvers<string>();
  const ending = new AbortController();
  const end = (reason: string): void => {
    ending.abort();
    resolve(reason);
  };
  const crashed = new AbortController();
  let asked = Infinity;
  let crashes = 0;
  const endNow = (): never => {
    abandon();
    process.exit(1);
  };
  const onSignal = (signal: string): void => {
    end(signal);
    if (performance.now() - asked > sameAsking) endNow();
    asked = Math.min(asked, performance.now());
  };
  const onCrash = (error: unknown): void => {
    process.exitCode = 1;
    if (++crashes >= crashLimit) endNow();
    process.stderr.write(`PGF_UNEXPECTED ${traceOf(error)}\n`);
    crashed.abort();
    end('an unexpected error');
  };
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  signals.forEach((signal) => process.on(signal, onSignal));
  process.on('uncaughtException', onCrash);
  return {
    reason: promise,
    signal: ending.signal,
    crashed: crashed.signal,
    crash: () => crashed.abort(),
    forget: () => {
      signals.forEach((signal) => process.off(signal, onSignal));
      process.off('uncaughtException', onCrash);
    },
  };
}
