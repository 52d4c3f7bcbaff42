/**
 * Checks package-lock.json against package.json and for consistency.
 *
 *   node scripts/lock.ts [root]
 *
 * npm silently writes an incomplete lock when the registry lacks a tool's package for another platform. `npm ci` then
 * fails for everyone. Prints one line per fault and exits with 1 if there is any.
 */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

type Names = Readonly<Record<string, string>>;

interface Wishes {
  readonly dependencies?: Names;
  readonly devDependencies?: Names;
  readonly optionalDependencies?: Names;
  readonly peerDependencies?: Names;
  readonly peerDependenciesMeta?: Readonly<Record<string, { readonly optional?: boolean }>>;
}

interface Manifest extends Wishes {
  readonly overrides?: Names;
}

interface Entry extends Wishes {
  readonly version?: string;
  readonly resolved?: string;
  readonly integrity?: string;
  readonly inBundle?: boolean;
}

type Packages = Readonly<Record<string, Entry>>;

export function findFaults(root: string): string[] {
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as Manifest;
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')) as { packages: Packages };
  return [
    ...differences(manifest, packages['']!),
    ...Object.entries(packages).flatMap(([path, entry]) => [
      ...missing(packages, path, entry, manifest.overrides ?? {}),
      ...(path === '' ? [] : untraceable(path, entry)),
    ]),
  ];
}

function differences(manifest: Manifest, locked: Entry): string[] {
  return (['dependencies', 'devDependencies', 'optionalDependencies', 'peerDependencies'] as const).flatMap((kind) => {
    const [wanted, known] = [manifest[kind] ?? {}, locked[kind] ?? {}];
    return [...new Set([...Object.keys(wanted), ...Object.keys(known)])]
      .filter((name) => wanted[name] !== known[name])
      .map((name) => `${name}: package.json says ${wanted[name] ?? 'nothing'}, the lock ${known[name] ?? 'nothing'}`);
  });
}

function missing(packages: Packages, path: string, entry: Entry, overrides: Names): string[] {
  const needed = Object.entries(entry.peerDependencies ?? {}).filter(
    ([name]) => entry.peerDependenciesMeta?.[name]?.optional !== true,
  );
  const wishes = {
    ...Object.fromEntries(needed),
    ...entry.dependencies,
    ...entry.devDependencies,
    ...entry.optionalDependencies,
  };
  const asker = path === '' ? 'package.json' : path;
  return Object.entries(wishes).flatMap(([name, range]) => {
    const version = resolve(packages, path, name)?.version;
    const wanted = overrides[name] ?? range;
    if (version === undefined) return [`${name}@${wanted} is missing; ${asker} needs it`];
    // Platform packages are required in an exact version. Ranges are left to npm.
    return /^\d+\.\d+\.\d+(?:-\S+)?$/.test(wanted) && version !== wanted
      ? [`${name}@${wanted} is missing, ${version} is there; ${asker} needs it`]
      : [];
  });
}

/** The package that an import from `path` would find. */
function resolve(packages: Packages, path: string, name: string): Entry | undefined {
  for (let folder = path; ; folder = folder.slice(0, Math.max(folder.lastIndexOf('/node_modules/'), 0))) {
    const entry = packages[`${folder === '' ? '' : `${folder}/`}node_modules/${name}`];
    if (entry !== undefined || folder === '') return entry;
  }
}

function untraceable(path: string, { resolved, integrity, inBundle }: Entry): string[] {
  return [
    ...(resolved === undefined ? [] : [`${path}: names the registry it came from; install with the project's .npmrc`]),
    ...(integrity === undefined && inBundle !== true ? [`${path}: has no hash`] : []),
  ];
}

if (import.meta.main) {
  const found = findFaults(process.argv[2] ?? dirname(import.meta.dirname));
  for (const line of found) console.log(`package-lock.json: ${line}`);
  if (found.length > 0) console.log('Choose versions whose packages are published for every platform: CONTRIBUTING.md');
  process.exitCode = found.length === 0 ? 0 : 1;
}
