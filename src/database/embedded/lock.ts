import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { constants, type FileHandle, open } from 'node:fs/promises';
import { PgfreshError } from '../../errors/index.ts';
import { pause } from '../../lifecycle/index.ts';
import { type DataFolder, ignoreMissing, unwritable } from './folder.ts';
import { bornAt } from './processes.ts';

/** Content of `server.json` while one of our processes uses the folder. */
export interface ServerState {
  readonly pid: number;
  readonly born: string | undefined;
  readonly postmaster?: number | undefined;
  /** Set while the server accepts connections. */
  readonly port?: number;
  readonly startedAt: string;
}

// A process that is ending, or a doctor that only looks, holds the lock for a moment.
const patience = 300;

/** Exclusive use of a data folder: a kernel lock on `server.json`, released when our process dies. */
export class FolderLock {
  readonly #folder: DataFolder;
  readonly #file: FileHandle;
  readonly #state: ServerState;

  private constructor(folder: DataFolder, file: FileHandle, state: ServerState) {
    this.#folder = folder;
    this.#file = file;
    this.#state = state;
  }

  static async take(folder: DataFolder): Promise<FolderLock> {
    for (const deadline = performance.now() + patience; ; await pause(50)) {
      const result = await tryLock(folder.state, constants.O_RDWR | constants.O_CREAT).catch((error: unknown) => {
        throw unwritable(folder, error);
      });
      if ('file' in result) {
        const state = { pid: process.pid, born: await bornAt(process.pid), startedAt: new Date().toISOString() };
        const lock = new FolderLock(folder, result.file, state);
        await lock.record({}).catch(async (error: unknown) => {
          await lock.release();
          throw error;
        });
        return lock;
      }
      if (performance.now() > deadline) {
        throw new PgfreshError('PGF_EMBEDDED_IN_USE', { folder: folder.root, pid: pidOf(result.holder) });
      }
    }
  }

  async record(server: Pick<ServerState, 'postmaster' | 'port'>): Promise<void> {
    const text = `${JSON.stringify({ ...this.#state, ...server }, undefined, 2)}\n`;
    await this.#rewrite(text).catch((error: unknown) => {
      throw unwritable(this.#folder, error);
    });
  }

  async release(): Promise<void> {
    try {
      await this.#rewrite('');
    } finally {
      await this.#file.close();
    }
  }

  // In place: a renamed file would not be the locked one.
  async #rewrite(text: string): Promise<void> {
    await this.#file.truncate(0);
    await this.#file.write(text, 0);
  }
}

/** What the process recorded about itself; `unknown` if it has not done so yet. */
export type Holder = ServerState | 'unknown';

export function pidOf(holder: Holder): number | 'unknown' {
  return holder === 'unknown' ? holder : holder.pid;
}

/** The process that uses the folder now, if any. */
export async function folderHolder(folder: DataFolder): Promise<Holder | undefined> {
  const result = await tryLock(folder.state, constants.O_RDONLY).catch(ignoreMissing);
  if (result === undefined) return undefined;
  if ('holder' in result) return result.holder;
  await result.file.close();
  return undefined;
}

async function tryLock(path: string, flags: number): Promise<{ file: FileHandle } | { holder: Holder }> {
  const file = await openLocked(path, flags);
  const reader = file ?? (await open(path, constants.O_RDONLY));
  try {
    const state = readState(await reader.readFile('utf8'));
    // Without a kernel lock, check whether the holder is alive.
    const alive = state?.born !== undefined && state.born === (await bornAt(state.pid));
    if (file !== undefined && !alive) return { file };
    await file?.close();
    return { holder: state ?? 'unknown' };
  } finally {
    if (file === undefined) await reader.close();
  }
}

/** Opens and locks; `undefined` if another process has the lock. */
async function openLocked(path: string, flags: number): Promise<FileHandle | undefined> {
  if (process.platform === 'darwin') {
    const exclusive = 0x20;
    return open(path, flags | exclusive | constants.O_NONBLOCK, 0o644).catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
      return undefined;
    });
  }
  const file = await open(path, flags, 0o644);
  // Node has no flock(2). The lock belongs to the open file, which we share with the program and keep after it exits.
  const flock = spawn('flock', ['-n', '-x', '3'], { stdio: ['ignore', 'ignore', 'ignore', file.fd] });
  const [code] = (await once(flock, 'exit').catch(() => [127])) as [number | null];
  if (code !== 1) return file;
  await file.close();
  return undefined;
}

function readState(text: string): ServerState | undefined {
  try {
    return JSON.parse(text) as ServerState;
  } catch {
    return undefined;
  }
}
