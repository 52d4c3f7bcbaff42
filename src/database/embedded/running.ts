import { readFile } from 'node:fs/promises';
import { pause } from '../../lifecycle/index.ts';
import { dataFolder } from './folder.ts';
import { folderHolder } from './lock.ts';
import { loginUrl } from './login.ts';

/**
 * The URL of the server that another of our processes runs in the folder; undefined if none does. Waits for one that is
 * starting or stopping.
 */
export async function runningEmbedded(dataDir: string, patience = 5_000): Promise<string | undefined> {
  const folder = dataFolder(dataDir);
  for (const deadline = performance.now() + patience; performance.now() < deadline; await pause(50)) {
    const holder = await folderHolder(folder);
    if (holder === undefined) return undefined;
    if (holder === 'unknown' || holder.port === undefined) continue;
    return loginUrl({ port: holder.port, password: (await readFile(folder.password, 'utf8')).trim() });
  }
  return undefined;
}
