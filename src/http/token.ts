import { randomBytes } from 'node:crypto';
import { link, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { makeDataDir } from '../database/index.ts';
import { PgfreshError, problemOf } from '../errors/index.ts';

const minLength = 16;

/** The token in the data folder. Created on first use, and readable only by its owner. */
export async function tokenOf(dataDir: string): Promise<string> {
  const file = join(dataDir, 'token');
  const token = await readOrCreate(dataDir, file).catch((error: unknown) => {
    if (error instanceof PgfreshError) throw error;
    throw new PgfreshError('PGF_DATA_DIR_UNWRITABLE', { folder: dataDir, problem: problemOf(error) }, { cause: error });
  });
  if (token.length < minLength)
    throw new PgfreshError('PGF_TOKEN_TOO_SHORT', { file, found: token.length, shortest: minLength });
  return token;
}

async function readOrCreate(dataDir: string, file: string): Promise<string> {
  const known = await readFile(file, 'utf8').catch(unless('ENOENT'));
  if (known !== undefined) return known.trim();
  await makeDataDir(dataDir);
  const unfinished = `${file}.${randomBytes(4).toString('hex')}`;
  try {
    await writeFile(unfinished, `${randomBytes(32).toString('base64url')}\n`, { mode: 0o600, flag: 'wx', flush: true });
    // Linked only once it is complete, so that of several processes that start together one wins.
    await link(unfinished, file).catch(unless('EEXIST'));
  } finally {
    await rm(unfinished, { force: true });
  }
  return (await readFile(file, 'utf8')).trim();
}

function unless(code: string): (error: NodeJS.ErrnoException) => undefined {
  return (error) => {
    if (error.code !== code) throw error;
  };
}
