import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { access, chmod, constants, cp, mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Account, spawnOptions } from './account.ts';
import type { Binaries } from './binaries.ts';
import { makeLinks } from './links.ts';

const run = promisify(execFile);

/** Where root stores files that the server's account must reach. */
const systemFolder = '/var/lib/pgfresh';

/** Clusters of data folders that the account cannot reach. */
export const clusters = join(systemFolder, 'data');

/** Programs known to run, by account. */
export interface Runtime {
  readonly initdb: string;
  readonly postgres: string;
  readonly account: Account | undefined;
  readonly hasStatements: boolean;
}

/**
 * Makes the binaries runnable for the account: in place if possible, else from a copy. A copy is
 * needed when links are missing in a folder that we cannot write, when the account cannot reach the folder, and
 * when initdb cannot: it passes its own path to a shell inside double quotes.
 */
export async function prepareRuntime(binaries: Binaries, account: Account | undefined): Promise<Runtime> {
  const quotable = !/["$`\\]/.test(binaries.folder);
  if (quotable) {
    const installed = await runtimeIn(binaries.folder, account).catch(() => undefined);
    if (installed !== undefined) return installed;
  }
  return runtimeIn(await copyOf(binaries), account);
}

async function runtimeIn(folder: string, account: Account | undefined): Promise<Runtime> {
  const bin = join(folder, 'native', 'bin');
  const [initdb, postgres] = [join(bin, 'initdb'), join(bin, 'postgres')];
  await makeLinks(folder);
  for (const program of [initdb, postgres]) {
    await access(program, constants.X_OK).catch(() => chmod(program, 0o755));
    await run(program, ['--version'], spawnOptions(account));
  }
  const library = join(folder, 'native', 'lib', 'postgresql', 'pg_stat_statements');
  const hasStatements = existsSync(`${library}.so`) || existsSync(`${library}.dylib`);
  return { initdb, postgres, account, hasStatements };
}

async function copyOf({ folder, version }: Binaries): Promise<string> {
  const home = await copiesFolder();
  const copy = join(home, version);
  if (existsSync(copy)) return copy;
  const unfinished = `${copy}.${randomBytes(4).toString('hex')}`;
  try {
    await cp(join(folder, 'native'), join(unfinished, 'native'), { recursive: true, verbatimSymlinks: true });
    await openToAll(unfinished);
    await rename(unfinished, copy);
  } catch (error) {
    await rm(unfinished, { recursive: true, force: true });
    // Another process created the same copy first.
    if (!existsSync(copy)) throw error;
  }
  return copy;
}

async function copiesFolder(): Promise<string> {
  if (process.getuid?.() === 0) return makeSystemFolder(join(systemFolder, 'runtime'));
  const cache = process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache');
  const home = join(cache, 'pgfresh', 'runtime');
  await mkdir(home, { recursive: true });
  return home;
}

/** Creates a folder owned by root that every account can enter, whatever the umask. */
export async function makeSystemFolder(folder: string): Promise<string> {
  await mkdir(folder, { recursive: true });
  for (const path of [systemFolder, folder]) await chmod(path, 0o755);
  return folder;
}

// Writable for ourselves too: a copy of read-only files would stay read-only, and links could not be added.
async function openToAll(folder: string): Promise<void> {
  await chmod(folder, 0o755);
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (entry.isSymbolicLink()) continue;
    const path = join(entry.parentPath, entry.name);
    const { mode } = await stat(path);
    await chmod(path, mode & 0o100 ? 0o755 : 0o644);
  }
}
