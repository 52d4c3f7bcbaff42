import { chmod, mkdtemp, readdir, readFile, rm, stat, statfs } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { alive } from './alive.ts';

const memory = '/dev/shm';
/** Space that a whole run may need. */
const roomBytes = 6e9;
const abandonedMs = 3_600_000;

/** A separate folder that the embedded server can reach too, when root runs it as another user. */
export async function temporaryFolder(name: string, within = tmpdir()): Promise<string> {
  const folder = await mkdtemp(join(within, `pgfresh-${name}-`));
  await chmod(folder, 0o755);
  return folder;
}

/**
 * A folder for all files of this process and its children: in memory if there is room, since a
 * database there costs a tenth of what it costs on a disk.
 */
export async function wholeRunFolder(): Promise<string> {
  if (!(await hasMemory())) return temporaryFolder('tests');
  await removeAbandoned();
  return temporaryFolder(`tests-${process.pid}`, memory);
}

async function hasMemory(): Promise<boolean> {
  if (process.platform !== 'linux') return false;
  try {
    const { bavail, bsize } = await statfs(memory);
    const mount = (await readFile('/proc/mounts', 'utf8')).split('\n').find((line) => line.split(' ')[1] === memory);
    // Programs are run from there too.
    return mount !== undefined && !/\bnoexec\b/.test(mount) && bavail * bsize > roomBytes;
  } catch {
    return false;
  }
}

/** Removes the folders of killed runs, which would stay in memory. */
async function removeAbandoned(): Promise<void> {
  for (const name of await readdir(memory)) {
    const [, pid] = /^pgfresh-tests-(\d+)-/.exec(name) ?? [];
    if (pid === undefined || alive(Number(pid))) continue;
    const folder = join(memory, name);
    const age = Date.now() - (await stat(folder)).mtimeMs;
    if (age > abandonedMs) await rm(folder, { recursive: true, force: true }).catch(() => {});
  }
}
