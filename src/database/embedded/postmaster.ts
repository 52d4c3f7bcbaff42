import { type ChildProcess, spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { within } from '../../lifecycle/index.ts';
import { spawnOptions } from './account.ts';
import { type DataFolder, openLog, rotateLog } from './folder.ts';
import { clusterName } from './leftovers.ts';
import { lastWords, readSince } from './log.ts';
import type { Runtime } from './runtime.ts';
import { watchOver } from './watcher.ts';

export interface PostmasterOptions {
  readonly runtime: Runtime;
  readonly folder: DataFolder;
  /** PGDATA with links resolved. */
  readonly cluster: string;
  readonly port: number;
  readonly fsync: boolean;
  /** Maximum size of its log, and how often to check it. */
  readonly logLimit: { readonly bytes: number; readonly everyMs: number };
}

/** One run of the server, from its start to its end. */
export class Postmaster {
  readonly pid: number | undefined;
  /** Resolves when the process has ended, with the reason if known. */
  readonly ended: Promise<string>;
  readonly #child: ChildProcess;
  readonly #cluster: string;
  #hasEnded = false;

  private constructor(child: ChildProcess, cluster: string, ended: Promise<string>) {
    this.#child = child;
    this.#cluster = cluster;
    this.pid = child.pid;
    this.ended = ended.finally(() => (this.#hasEnded = true));
  }

  static async spawn(options: PostmasterOptions): Promise<Postmaster> {
    const { folder, logLimit } = options;
    const log = await openLog(folder);
    const rotate = (): Promise<void> => rotateLog(folder, log, logLimit.bytes).catch(() => {});
    await rotate();
    const rotation = setInterval(() => void rotate(), logLimit.everyMs);
    rotation.unref();
    const { size } = await log.stat();
    const child = spawn(options.runtime.postgres, serverArguments(options), {
      ...spawnOptions(options.runtime.account),
      // Detached from the terminal's Ctrl-C: we decide when it stops.
      detached: true,
      stdio: ['ignore', 'ignore', log.fd],
    });
    const callOff = child.pid === undefined ? undefined : watchOver(child.pid, options.runtime.account);
    const ended = ending(child).then(async (how) => {
      clearInterval(rotation);
      await callOff?.();
      const said = await readSince(log, size).catch(String);
      await log.close();
      return how ?? lastWords(said);
    });
    return new Postmaster(child, options.cluster, ended);
  }

  /** Waits until it accepts connections; false if it ends first. Reads the server's pid file, as pg_ctl does. */
  async becomesReady(signal: AbortSignal): Promise<boolean> {
    while (!this.#hasEnded) {
      signal.throwIfAborted();
      const lines = (await readFile(join(this.#cluster, 'postmaster.pid'), 'utf8').catch(() => '')).split('\n');
      if (Number(lines[0]) === this.pid && lines[7]?.trim() === 'ready') return true;
      await within(20, this.ended);
    }
    return false;
  }

  /** Ends it at once, without a checkpoint; the next start recovers. */
  quit(): void {
    if (!this.#hasEnded) this.#child.kill('SIGQUIT');
  }

  /** Fast shutdown; immediate after the given time, and killed ten seconds later. */
  async stop(patience: number): Promise<void> {
    const steps = [
      ['SIGINT', patience],
      ['SIGQUIT', 10_000],
      ['SIGKILL', 10_000],
    ] as const;
    for (const [signal, milliseconds] of steps) {
      if (this.#hasEnded) return;
      this.#child.kill(signal);
      await within(milliseconds, this.ended);
    }
  }
}

/** How the process ended, if that says more than its log. */
function ending(child: ChildProcess): Promise<string | undefined> {
  return new Promise((resolve) => {
    child.on('error', (error) => resolve(error.message));
    child.on('exit', (_code, signal) => resolve(signal ? `the server process was ended by ${signal}` : undefined));
  });
}

function serverArguments({ runtime, cluster, port, fsync }: PostmasterOptions): string[] {
  const settings = [
    'listen_addresses=127.0.0.1',
    'unix_socket_directories=',
    'max_connections=200',
    'logging_collector=off',
    'log_line_prefix=%m [%p] ',
    `cluster_name=${clusterName(cluster)}`,
    ...(runtime.hasStatements ? ['shared_preload_libraries=pg_stat_statements'] : []),
    ...(fsync ? [] : ['fsync=off', 'synchronous_commit=off', 'full_page_writes=off']),
  ];
  return ['-D', cluster, '-p', String(port), ...settings.flatMap((setting) => ['-c', setting])];
}
