import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { styleText } from 'node:util';
import type { ResolvedConfig, Settings } from '../config/index.ts';
import { version } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import { thenStop } from '../lifecycle/index.ts';
import { roleNames, Runtime, type Role } from '../runtime/index.ts';
import { logEvents } from '../watch/index.ts';
import type { CommandContext } from './context.ts';

interface RunOptions {
  readonly roles: readonly Role[];
  readonly migrate: boolean;
  /** Also starts the configuration's `dev` function. */
  readonly dev?: boolean;
  /** Limits a worker to these data types. */
  readonly types?: readonly string[] | undefined;
}

/** Starts the roles, prints a banner, and stops them cleanly when the process is asked to end. */
export async function runUntilStopped(context: CommandContext, options: RunOptions): Promise<void> {
  const since = performance.now();
  const { events } = context;
  const config = await context.config();
  const stopLog = logEvents(events, logLevelOf(context, config), process.stderr);
  const runtime = new Runtime({ ...options, config, events });
  const asked = endOfProcess(() => runtime.abandon());
  const run = async (): Promise<void> => {
    const isReady = await Promise.race([runtime.start().then(() => true), asked.reason.then(() => false)]);
    if (isReady) {
      const started = startedOf(runtime, config.settings);
      const { roles } = options;
      const { url, psql, notes } = started;
      context.output.result({ version, ready: true, url, psql, roles, pid: process.pid, notes }, () =>
        banner(started, roles, performance.now() - since),
      );
    }
    const replaced = runtime.replaced.catch((error: unknown) => {
      events.emit({ type: 'process.stopping', reason: problemOf(error) });
      throw error;
    });
    events.emit({ type: 'process.stopping', reason: await Promise.race([asked.reason, replaced]) });
  };
  const ran = run().catch((error: unknown) => {
    asked.crash();
    throw error;
  });
  // After a fatal error the stop itself may hang, so it gets a time limit.
  await thenStop(ran, () => runtime.stopInTime(asked.crashed)).finally(() => {
    asked.forget();
    stopLog();
  });
}

/** --debug implies the level debug, unless a level is configured. */
function logLevelOf({ output }: CommandContext, { settings, origins }: ResolvedConfig): Settings['logLevel'] {
  return output.debug && origins.logLevel === 'default' ? 'debug' : settings.logLevel;
}

interface Started {
  readonly url: string;
  /** How to open the embedded database. */
  readonly psql: string | undefined;
  readonly notes: Readonly<Record<string, string>>;
}

function startedOf({ address, databaseUrl, notes }: Runtime, settings: Settings): Started {
  const psql = settings.databaseUrl === undefined ? psqlOf(databaseUrl, settings.dataDir) : undefined;
  return { url: address!, psql, notes };
}

function banner({ url, psql, notes }: Started, roles: readonly Role[], ms: number): string {
  const rows = [
    ...(roles.includes('console') ? [['Open', url]] : []),
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

/** A psql command for the embedded database that keeps the password out of the shell's history. */
function psqlOf(databaseUrl: string, dataDir: string): string {
  const address = new URL(databaseUrl);
  address.password = '';
  return `PGPASSWORD=$(cat ${join(dataDir, 'password')}) psql ${address.href}`;
}

// npm repeats Ctrl-C at once; a later signal means that the user wants to end the process now.
const repeatMs = 1_000;

/** Never throws: an error while reading an error would end the process before the stop. */
function traceOf(error: unknown): string {
  try {
    const stack: unknown = error instanceof Error ? error.stack : undefined;
    return typeof stack === 'string' ? stack : problemOf(error);
  } catch {
    return problemOf(error);
  }
}

/** After this many uncaught errors, exit at once: timers may no longer run. */
const crashLimit = 100;

interface EndOfProcess {
  /** Resolves when the process is asked to end, or has failed. */
  readonly reason: Promise<string>;
  /** Aborted at the same moment. */
  readonly signal: AbortSignal;
  /** Aborted by a fatal error. */
  readonly crashed: AbortSignal;
  crash(): void;
  forget(): void;
}

/** Handles signals and uncaught errors. A second signal ends the process at once. */
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
    if (performance.now() - asked > repeatMs) endNow();
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
