import { resolve } from 'node:path';
import type { Settings } from '../config/index.ts';
import { embeddedStatus } from '../database/index.ts';

/** Whether the database is an embedded one that does not exist yet. Does not create it. */
export async function isUncreated({
  databaseUrl,
  dataDir,
}: Pick<Settings, 'databaseUrl' | 'dataDir'>): Promise<boolean> {
  if (databaseUrl !== undefined) return false;
  const { dataVersion, usedBy, problem } = await embeddedStatus(resolve(dataDir));
  return dataVersion === undefined && usedBy === undefined && problem === undefined;
}
