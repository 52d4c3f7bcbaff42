import { existsSync } from 'node:fs';
import { access, constants, mkdir } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { PgfreshError, problemOf } from '../errors/index.ts';

/** Creates the data folder if it is missing, and checks that it is writable. */
export async function makeDataDir(dataDir: string): Promise<void> {
  const folder = resolve(dataDir);
  try {
    await makePath(folder);
    // With the trailing slash, a file in its place is refused too.
    await access(`${folder}/`, constants.W_OK | constants.X_OK);
  } catch (error) {
    throw new PgfreshError('PGF_DATA_DIR_UNWRITABLE', { folder, problem: problemOf(error) }, { cause: error });
  }
}

// Node's own recursive mkdir never returns where creating a folder fails with ENOENT, as in /proc.
async function makePath(folder: string): Promise<void> {
  const parent = dirname(folder);
  if (parent !== folder && !existsSync(parent)) await makePath(parent);
  try {
    await mkdir(folder);
  } catch (error) {
    if (!existsSync(folder)) throw error;
  }
}
