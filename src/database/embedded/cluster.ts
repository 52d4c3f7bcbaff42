import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chown, mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PgfreshError } from '../../errors/index.ts';
import { type Account, canEnter } from './account.ts';
import { type DataFolder, failed, ignoreMissing } from './folder.ts';
import { runInitdb } from './initdb.ts';
import { clusters, makeSystemFolder, type Runtime } from './runtime.ts';

/** The role and the database that we create. */
export const databaseName = 'pgfresh';
// Not "pgfresh": the search path starts with the schema of the user's name, so users' tables would land in ours.
export const userName = 'postgres';

const unfinishedPrefix = 'postgres.new';

/**
 * Creates the cluster under a temporary name and renames it when complete, so that an interrupted attempt is
 * never mistaken for one.
 */
export async function createCluster(
  folder: DataFolder,
  runtime: Runtime,
  password: string,
  signal: AbortSignal,
): Promise<void> {
  try {
    const home = await clusterHome(folder, runtime.account);
    await removeUnfinished(home);
    // A new name each time: an initdb whose pgfresh was killed may still be writing.
    const unfinished = join(home, `${unfinishedPrefix}.${randomBytes(4).toString('hex')}`);
    const passwordFile = `${unfinished}.password`;
    await writeFile(passwordFile, `${password}\n`, { mode: 0o600 });
    await mkdir(unfinished, { mode: 0o700 });
    await giveTo(runtime.account, [passwordFile, unfinished]);
    await runInitdb(runtime, folder, initdbOptions(unfinished, passwordFile), signal);
    await rm(passwordFile);
    await moveIn(unfinished, home, folder);
  } catch (error) {
    if (error instanceof PgfreshError || signal.aborted) throw error;
    throw failed(folder, 'creating the database cluster', String(error), error);
  }
}

/** Flushes initdb's files to disk, which initdb skipped in order to be ready sooner. */
export async function syncCluster(folder: DataFolder, runtime: Runtime, cluster: string): Promise<void> {
  await runInitdb(runtime, folder, ['--sync-only', `--pgdata=${cluster}`], new AbortController().signal);
}

function initdbOptions(cluster: string, passwordFile: string): string[] {
  return [
    `--pgdata=${cluster}`,
    `--username=${userName}`,
    `--pwfile=${passwordFile}`,
    '--auth=scram-sha-256',
    '--encoding=UTF8',
    // The same sort order and case rules on every machine, whatever its locale.
    '--locale=C',
    '--locale-provider=builtin',
    '--builtin-locale=C.UTF-8',
    '--no-sync',
    '--no-instructions',
  ];
}

/** The data folder itself, or a folder owned by root if the server's account cannot reach it. */
async function clusterHome(folder: DataFolder, account: Account | undefined): Promise<string> {
  if (account === undefined || (await canEnter(folder.root, account))) return folder.root;
  await makeSystemFolder(clusters);
  const home = await makeSystemFolder(join(clusters, await idOf(folder)));
  // Tells an operator which data folder this cluster belongs to.
  await writeFile(join(home, 'belongs-to.txt'), `${folder.root}\n`);
  return home;
}

/** A name for this folder's files elsewhere. It is stored in the folder, which may be moved. */
async function idOf({ id }: DataFolder): Promise<string> {
  const known = (await readFile(id, 'utf8').catch(ignoreMissing))?.trim();
  // A copied folder has the same id: an existing cluster belongs to the original.
  if (known !== undefined && /^[0-9a-f]{12}$/.test(known) && !existsSync(join(clusters, known, 'postgres')))
    return known;
  const made = randomBytes(6).toString('hex');
  await writeFile(id, `${made}\n`, { mode: 0o600, flush: true });
  return made;
}

async function moveIn(unfinished: string, home: string, folder: DataFolder): Promise<void> {
  const place = join(home, 'postgres');
  if (home === folder.root) return rename(unfinished, place);
  await rename(unfinished, place);
  await rm(folder.cluster, { force: true });
  await symlink(place, folder.cluster);
}

async function removeUnfinished(home: string): Promise<void> {
  const names = (await readdir(home)).filter((name) => name.startsWith(unfinishedPrefix));
  await Promise.all(names.map((name) => rm(join(home, name), { recursive: true, force: true, maxRetries: 5 })));
}

async function giveTo(account: Account | undefined, paths: readonly string[]): Promise<void> {
  if (account === undefined) return;
  await Promise.all(paths.map((path) => chown(path, account.uid, account.gid)));
}
