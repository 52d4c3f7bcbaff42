import { randomBytes } from 'node:crypto';
import { access, constants, readFile, rename, stat, symlink } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';

/**
 * npm packages cannot contain symbolic links, so the binaries come with a list of the links that their libraries need.
 * The install script that would create them is often disabled, so we create them.
 */
interface Link {
  readonly source: string;
  readonly target: string;
}

/** `unwritable`: some are missing and cannot be created there; the server then runs from a copy. */
export type LinkState = 'present' | 'missing' | 'unwritable';

export async function linkState(folder: string): Promise<LinkState> {
  const missing = await missingLinks(folder);
  if (missing.length === 0) return 'present';
  const writable = missing.map(({ target }) => access(dirname(join(folder, target)), constants.W_OK));
  return (await Promise.allSettled(writable)).every(({ status }) => status === 'fulfilled') ? 'missing' : 'unwritable';
}

export async function makeLinks(folder: string): Promise<void> {
  for (const { source, target } of await missingLinks(folder)) {
    const path = join(folder, target);
    const unfinished = `${path}.${randomBytes(4).toString('hex')}`;
    // Renaming atomically replaces a dangling link or one that another process created meanwhile.
    await symlink(relative(dirname(target), source), unfinished);
    await rename(unfinished, path);
  }
}

async function missingLinks(folder: string): Promise<Link[]> {
  const links = JSON.parse(await readFile(join(folder, 'native', 'pg-symlinks.json'), 'utf8')) as Link[];
  const found = await Promise.allSettled(links.map(({ target }) => stat(join(folder, target))));
  return links.filter((_, index) => found[index]!.status === 'rejected');
}
