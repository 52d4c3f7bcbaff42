import { existsSync } from 'node:fs';
import { access, constants, mkdir } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { PgfreshError, problemOf } from '../errors/index.ts';

/** Makes the data folder if it is not there, and sees that it can be written. */
export async function makeDataDir(dataDir: string): Promise<void> {
  const folder = resolve(dataDir);
  try {
    await makePath(folder);
    // With the stroke, a file in its place is refused too.
    await access(`${folder}/`, constants.W_OK | constants.X_OK);
  } catch (error) {
    throw new PgfreshError('PGF_DATA_DIR_UNWRITABLE', { folder, problem: problemOf(error) }, { cause: error });
  }
}

// Node's own recursive mkdir never comes back where a folder cannot be made but says ENOENT, as in /proc.
async function makePath(folder: string): Promise<void> {
  const parent = dirname(folder);
  if (parent !== folder && !existsSync(parent)) await makePath(parent);
  try {
    await mkdir(folder);
  } catch (error) {
    if (!existsSync(folder)) throw error;
  }
}
