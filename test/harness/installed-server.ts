import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chown, rm } from 'node:fs/promises';
import { existsSync, globSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as wait } from 'node:timers/promises';
import { promisify } from 'node:util';
import { serverAccount, spawnOptions, type Account } from '../../src/database/embedded/account.ts';
import { atEnd } from './database.ts';
import { temporaryFolder } from './folder.ts';
import { databaseUrl, statement } from './server.ts';

const run = promisify(execFile);
const programs = ['initdb', 'postgres', 'pg_dump', 'pg_dumpall', 'pg_restore', 'psql'];

/**
 * Where a PostgreSQL with pg_dump is installed, as Debian's package postgresql-15 has it. The embedded one has no pg_dump.
 * The oldest: the others are newer, and what it dumps must be restored into them.
 */
export const installedPrograms = globSync(process.env['PGFRESH_TEST_POSTGRES'] ?? '/usr/lib/postgresql/*/bin')
  .filter((folder) => programs.every((program) => existsSync(join(folder, program))))
  .toSorted((a, b) => a.localeCompare(b, 'en', { numeric: true }))[0];

/** A server of that PostgreSQL, for one test file. */
export class InstalledServer {
  readonly #folder: string;
  readonly #port: number;
  #databases = 0;

  private constructor(folder: string, port: number) {
    this.#folder = folder;
    this.#port = port;
  }

  static async start(): Promise<InstalledServer> {
    const folder = await temporaryFolder('installed');
    const account = await serverAccount(folder);
    if (account) await chown(folder, account.uid, account.gid);
    const server = new InstalledServer(join(folder, 'data'), await freePort());
    await server.#initialise(account);
    const child = server.#launch(account);
    atEnd(async () => {
      const end = once(child, 'exit');
      child.kill('SIGINT');
      await end;
      await rm(folder, { recursive: true, force: true });
    });
    await server.#ready(child);
    return server;
  }

  /** A database of this server, empty or a copy of another. */
  async create(template?: string): Promise<string> {
    const name = `restored_${++this.#databases}`;
    const source = template === undefined ? '' : ` template ${new URL(template).pathname.slice(1)}`;
    await statement(this.#url('postgres'), `create database ${name}${source}`);
    return this.#url(name);
  }

  /** Writes a dump in the archive format of pg_dump. */
  async dump(url: string): Promise<string> {
    const file = join(await temporaryFolder('dump'), 'all.dump');
    await runProgram('pg_dump', ['--format=custom', `--file=${file}`, url]);
    return file;
  }

  /** The roles of the server, as a script. */
  async dumpRoles(): Promise<string> {
    const file = join(await temporaryFolder('dump'), 'roles.sql');
    await runProgram('pg_dumpall', ['--roles-only', `--file=${file}`, `--dbname=${this.#url('postgres')}`]);
    return file;
  }

  #url(database: string): string {
    return databaseUrl(`postgres://postgres@127.0.0.1:${this.#port}/`, database);
  }

  async #initialise(account: Account | undefined): Promise<void> {
    const options = ['-U', 'postgres', '--auth=trust', '--no-sync', '--encoding=UTF8', '--locale=C'];
    await run(join(installedPrograms!, 'initdb'), ['-D', this.#folder, ...options], spawnOptions(account));
  }

  #launch(account: Account | undefined): ChildProcess {
    const settings = ['listen_addresses=127.0.0.1', 'unix_socket_directories=', 'fsync=off', 'max_connections=200'];
    return spawn(
      join(installedPrograms!, 'postgres'),
      ['-D', this.#folder, '-p', String(this.#port), ...settings.flatMap((setting) => ['-c', setting])],
      { ...spawnOptions(account), stdio: 'ignore' },
    );
  }

  async #ready(child: ChildProcess): Promise<void> {
    while (child.exitCode === null) {
      const isReady = await statement(this.#url('postgres'), 'select 1').then(
        () => true,
        () => false,
      );
      if (isReady) return;
      await wait(50);
    }
    throw new Error(`postgres of ${installedPrograms} ended at its start`);
  }
}

/** Restores a dump into a database. Fails at the first error. */
export async function restore(file: string, url: string, ...options: string[]): Promise<void> {
  await runProgram('pg_restore', ['--exit-on-error', ...options, `--dbname=${url}`, file]);
}

/**
 * Restores a dump as a login that is no superuser. It may not give functions to a role that may not create in their schema;
 * pg_restore reports such errors and continues.
 */
export async function restoreAsOwner(file: string, url: string): Promise<void> {
  const restored = runProgram('pg_restore', [`--dbname=${url}`, file]);
  await restored.catch((error: unknown) => {
    const { stderr } = error as { stderr: string };
    const problems = stderr.split('\n').filter((line) => line.includes('error:'));
    const others = problems.filter((line) => !line.endsWith('permission denied for schema pgfresh_engine'));
    if (problems.length === 0 || others.length > 0) throw error;
  });
}

/** Makes the roles of another server that are not there yet. */
export async function restoreRoles(file: string, url: string): Promise<void> {
  // It has the superuser too, who is there under the same name or is not needed.
  await runProgram('psql', ['--quiet', '--no-psqlrc', `--dbname=${url}`, `--file=${file}`]);
}

async function runProgram(program: string, args: readonly string[]): Promise<void> {
  await run(join(installedPrograms!, program), args, { env: { PATH: process.env['PATH'] ?? '', LC_ALL: 'C' } });
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}
