import { nearMiss, resolveConfig, type Config } from '../config/index.ts';
import { PgfreshError, problemOf } from '../errors/index.ts';
import { Events } from '../events/index.ts';
import { logEvents } from '../watch/index.ts';
import { readRoles, roleNames, type Role } from './role-names.ts';
import { Runtime } from './runtime.ts';

export interface StartOptions {
  /** The default export of `pgfresh.config.ts`, or an object like it. */
  readonly config: Config;
  /** Defaults to all roles. */
  readonly roles?: readonly Role[] | undefined;
  /** Where the HTTP server listens; overrides the settings. False starts no HTTP server. */
  readonly listen?: false | { readonly host?: string | undefined; readonly port?: number | undefined } | undefined;
  /** Migrates the database first. Without it, the start fails if migrations are pending. */
  readonly migrate?: boolean | undefined;
  /** Environment variables, which override the configuration. Defaults to `process.env`. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
}

/** A running pgfresh. */
export interface Pgfresh extends AsyncDisposable {
  /** The URL of the HTTP server, for instance `http://127.0.0.1:4400`; undefined with `listen: false`. */
  readonly address: string | undefined;
  /** Resolves once all roles run, which they do when `start` has returned. */
  readonly ready: Promise<void>;
  /** Finishes running work and stops all roles, within a time limit. May be called again. */
  stop(): Promise<void>;
}

/** The roles that need an HTTP server. */
const served: readonly Role[] = ['gateway', 'console'];

/** Runs pgfresh in this process. If a part fails to start, the others are stopped before this rejects. */
export async function start(options: StartOptions): Promise<Pgfresh> {
  const { roles, listen, migrate, env } = readOptions(options);
  const config = resolveConfig({ config: options.config, flags: listen || {}, env });
  const events = new Events();
  const stopLog = logEvents(events, config.settings.logLevel, process.stderr);
  const runtime = new Runtime({ config, roles, events, migrate, listen: listen !== false });
  let stopping: Promise<void> | undefined;
  const stop = (): Promise<void> => (stopping ??= runtime.stopInTime().finally(stopLog));
  const ready = runtime.start();
  try {
    await ready;
  } catch (error) {
    await stop().catch(() => {});
    throw error;
  }
  const stopBecause = (reason: string): Promise<void> => {
    if (!stopping) events.emit({ type: 'process.stopping', reason });
    return stop();
  };
  runtime.replaced.catch((error: unknown) => stopBecause(problemOf(error)).catch(() => {}));
  const stopAsAsked = (): Promise<void> => stopBecause('stop() was called');
  return { address: runtime.address, ready, stop: stopAsAsked, [Symbol.asyncDispose]: stopAsAsked };
}

const optionNames = ['config', 'roles', 'listen', 'migrate', 'env'];

function readOptions(options: StartOptions) {
  requireObject(options, 'the options', optionNames);
  const { config, roles = roleNames, listen = {}, migrate = false, env = process.env } = options;
  if (config === undefined) throw misuse('expected config, the default export of pgfresh.config.ts, got none');
  if (!Array.isArray(roles)) throw misuse(`expected roles to be a list, got ${JSON.stringify(roles)}`);
  if (roles.length === 0) throw misuse(`expected roles to name at least one of ${roleNames.join(', ')}, got none`);
  if (typeof migrate !== 'boolean')
    throw misuse(`expected migrate to be true or false, got ${JSON.stringify(migrate)}`);
  if (listen !== false) requireListen(listen);
  const given: readonly unknown[] = roles;
  const known = readRoles(given.map(String));
  const unreachable = listen === false ? known.filter((role) => served.includes(role)) : [];
  if (unreachable.length > 0)
    throw misuse(
      `listen is false, so nothing could reach the roles ${unreachable.join(' and ')}; leave them out of roles`,
    );
  return { roles: known, listen, migrate, env };
}

function requireListen(listen: Exclude<StartOptions['listen'], false | undefined>): void {
  requireObject(listen, 'listen', ['host', 'port']);
  const { host, port = 0 } = listen;
  if (!Number.isInteger(port) || port < 0 || port > 65_535)
    throw misuse(`expected listen.port to be a whole number from 0 to 65535, got ${JSON.stringify(port)}`);
  if (host !== undefined && (typeof host !== 'string' || host === ''))
    throw misuse(`expected listen.host to be an address, got ${JSON.stringify(host)}`);
}

function requireObject(value: unknown, what: string, names: readonly string[]): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw misuse(`expected ${what} to be an object, got ${JSON.stringify(value)}`);
  for (const name of Object.keys(value)) {
    if (names.includes(name)) continue;
    const near = nearMiss(name, names);
    const hint = near ? `did you mean "${near}"?` : `expected one of ${names.join(', ')}`;
    throw misuse(`there is no "${name}" in ${what}; ${hint}`);
  }
}

function misuse(problem: string): PgfreshError {
  return new PgfreshError('PGF_START_INVALID', { problem });
}
