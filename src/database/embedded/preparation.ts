import { realpath } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { PgfreshError, problemOf } from '../../errors/index.ts';
import type { Events } from '../../events/index.ts';
import { serverAccount } from './account.ts';
import type { Binaries } from './binaries.ts';
import { createCluster } from './cluster.ts';
import { clusterVersion, type DataFolder, dataFolder, failed, passwordOf } from './folder.ts';
import { endLeftovers } from './leftovers.ts';
import { FolderLock } from './lock.ts';
import { clusters, prepareRuntime, type Runtime } from './runtime.ts';

/** Everything that a postmaster needs, found or created. */
export interface Prepared {
  readonly runtime: Runtime;
  /** PGDATA with links resolved, as in the titles of the server's processes. */
  readonly cluster: string;
  readonly password: string;
  readonly fresh: boolean;
  /** The lock of a cluster stored elsewhere: a copy of our folder points to the same one. */
  readonly lock: FolderLock | undefined;
}

/** Call with the folder's lock held: any process still running on the cluster counts as a leftover. */
export async function prepare(
  folder: DataFolder,
  binaries: Binaries,
  events: Events,
  signal: AbortSignal,
): Promise<Prepared> {
  const found = await clusterVersion(folder);
  const fresh = found === undefined;
  if (!fresh && found !== String(binaries.major)) {
    throw new PgfreshError('PGF_EMBEDDED_OTHER_VERSION', { folder: folder.root, found, expected: binaries.major });
  }
  events.emit({ type: 'database.starting', folder: folder.root, fresh });
  const account = await serverAccount(folder.cluster);
  const runtime = await prepareRuntime(binaries, account).catch((error: unknown) => {
    throw failed(folder, 'loading its programs', problemOf(error), error);
  });
  const password = await passwordOf(folder, fresh);
  if (fresh) await createCluster(folder, runtime, password, signal);
  const cluster = await realpath(folder.cluster);
  const isElsewhere = cluster.startsWith(join(clusters, '/'));
  const lock = isElsewhere ? await FolderLock.take(dataFolder(dirname(cluster))) : undefined;
  await clearWay(folder, cluster).catch(async (error: unknown) => {
    await lock?.release();
    throw error;
  });
  return { runtime, cluster, password, fresh, lock };
}

export async function clearWay(folder: DataFolder, cluster: string): Promise<void> {
  await endLeftovers(cluster).catch((error: unknown) => {
    throw failed(folder, 'ending an earlier server', problemOf(error), error);
  });
}
