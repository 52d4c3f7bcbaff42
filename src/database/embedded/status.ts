import { problemOf } from '../../errors/index.ts';
import { findBinaries, platform } from './binaries.ts';
import { clusterVersion, dataFolder } from './folder.ts';
import { type LinkState, linkState } from './links.ts';
import { folderHolder, pidOf } from './lock.ts';

/** Read-only status for the doctor. */
export interface EmbeddedStatus {
  readonly platform: string;
  /** The installed binaries, if there are any for this platform. */
  readonly binaries?: { readonly version: string; readonly major: number; readonly links: LinkState };
  /** The major version that created the data, if any. */
  readonly dataVersion?: string;
  /** The process that uses the folder. */
  readonly usedBy?: number | 'unknown';
  /** Why the folder could not be read. */
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
