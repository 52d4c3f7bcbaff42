import { problemOf } from '../../errors/index.ts';
import { findBinaries, platform } from './binaries.ts';
import { clusterVersion, dataFolder } from './folder.ts';
import { type LinkState, linkState } from './links.ts';
import { folderHolder, pidOf } from './lock.ts';

/** What the doctor wants to know; nothing is changed by looking. */
export interface EmbeddedStatus {
  readonly platform: string;
  /** The installed binaries, if there are any for this platform. */
  readonly binaries?: { readonly version: string; readonly major: number; readonly links: LinkState };
  /** The major version that made the data, if there is any. */
  readonly dataVersion?: string;
  /** The process that uses the folder. */
  readonly usedBy?: number | 'unknown';
  /** Why the folder could not be looked into. */
  readonly problem?: string;
}

export async function embeddedStatus(dataDir: string): Promise<EmbeddedStatus> {
  const binaries = findBinaries();
  return {
    platform,
    ...(binaries && {
      binaries: { version: binaries.version, major: binaries.major, links: await linkState(binaries.folder) },
    }),
    ...(await folderStatus(dataDir)),
  };
}

async function folderStatus(dataDir: string): Promise<Pick<EmbeddedStatus, 'dataVersion' | 'usedBy' | 'problem'>> {
  const folder = dataFolder(dataDir);
  try {
    const dataVersion = await clusterVersion(folder);
    const holder = await folderHolder(folder);
    return {
      ...(dataVersion !== undefined && { dataVersion }),
      ...(holder !== undefined && { usedBy: pidOf(holder) }),
    };
  } catch (error) {
    return { problem: problemOf(error) };
  }
}
