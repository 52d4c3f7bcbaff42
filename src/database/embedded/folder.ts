import { randomBytes } from 'node:crypto';
import { copyFile, type FileHandle, open, readFile, rename, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { PgfreshError, problemOf } from '../../errors/index.ts';

/** The data folder and its contents. */
export interface DataFolder {
  readonly root: string;
  /** PGDATA, or a link to it where the server's account cannot reach this folder. */
  readonly cluster: string;
  /** The name of its cluster if that is stored elsewhere. */
  readonly id: string;
  /** The password of the database user, readable by the owner only. */
  readonly password: string;
  readonly log: string;
  /** The process that uses the folder; also the lock file. */
  readonly state: string;
}

export function dataFolder(dataDir: string): DataFolder {
  const root = resolve(dataDir);
  return {
    root,
    cluster: join(root, 'postgres'),
    id: join(root, 'cluster-id'),
    password: join(root, 'password'),
    log: join(root, 'postgres.log'),
    state: join(root, 'server.json'),
  };
}

export function unwritable(folder: DataFolder, error: unknown): PgfreshError {
  return new PgfreshError(
    'PGF_DATA_DIR_UNWRITABLE',
    { folder: folder.root, problem: problemOf(error) },
    { cause: error },
  );
}

export function failed(folder: DataFolder, step: string, said: string, cause?: unknown): PgfreshError {
  const values = { step, stderr: said, log: folder.log, folder: folder.root };
  return new PgfreshError('PGF_EMBEDDED_FAILED', values, { cause });
}

/** The major version that created the cluster; `undefined` if there is none yet. */
export async function clusterVersion(folder: DataFolder): Promise<string | undefined> {
  try {
    return (await readFile(join(folder.cluster, 'PG_VERSION'), 'utf8').catch(ignoreMissing))?.trim();
  } catch (error) {
    throw unwritable(folder, error);
  }
}

/** The password; generated before the cluster is created. */
export async function passwordOf(folder: DataFolder, fresh: boolean): Promise<string> {
  try {
    const known = (await readFile(folder.password, 'utf8').catch(ignoreMissing))?.trim();
    if (known) return known;
    if (!fresh) throw failed(folder, 'reading the password', `${folder.password} is missing`);
    const password = randomBytes(24).toString('base64url');
    const unfinished = `${folder.password}.new`;
    await writeFile(unfinished, `${password}\n`, { mode: 0o600, flush: true });
    await rename(unfinished, folder.password);
    return password;
  } catch (error) {
    throw error instanceof PgfreshError ? error : unwritable(folder, error);
  }
}

/** The server writes its own log: logging must neither depend on us reading it nor end with us. */
export async function openLog(folder: DataFolder): Promise<FileHandle> {
  const log = await open(folder.log, 'a+', 0o600).catch((error: unknown) => {
    throw unwritable(folder, error);
  });
  return log;
}

/** Rotates a log that is too long. The server only appends, so it continues at the start. */
export async function rotateLog(folder: DataFolder, log: FileHandle, maximumBytes: number): Promise<void> {
  if ((await log.stat()).size <= maximumBytes) return;
  await copyFile(folder.log, `${folder.log}.1`);
  await log.truncate(0);
}

export function ignoreMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
