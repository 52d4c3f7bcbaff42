/**
 * Lists what keeps this commit from being released.
 *
 *   node scripts/release.ts v0.1.0 [root]
 *
 * Prints one line per reason and exits with 1 if there is any. CONTRIBUTING.md describes a release.
 */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

interface Manifest {
  readonly version: string;
  readonly homepage?: string;
  readonly repository?: { readonly url?: string };
}

export function findObstacles(tag: string, root: string): string[] {
  const read = (path: string): string => readFileSync(join(root, path), 'utf8');
  const { version, homepage, repository } = JSON.parse(read('package.json')) as Manifest;
  const lock = JSON.parse(read('package-lock.json')) as Manifest;
  const [, newest, date] = /^## \[(.+?)\] - (.+)$/m.exec(read('CHANGELOG.md')) ?? [];
  const wanted: readonly (readonly [boolean, string])[] = [
    [tag === `v${version}`, `the tag is ${tag}, and package.json says ${version}`],
    [lock.version === version, `package-lock.json says ${lock.version}, and package.json ${version}`],
    [
      newest === version,
      `the newest version of CHANGELOG.md is ${newest ?? 'missing'}, and package.json says ${version}`,
    ],
    [/^\d{4}-\d\d-\d\d$/.test(date ?? ''), `CHANGELOG.md has no date for ${newest ?? version}`],
    // npm shows them beside the README, resolves its links with them, and signs the origin of the build.
    [repository?.url !== undefined, 'package.json has no repository.url'],
    [homepage !== undefined, 'package.json has no homepage'],
  ];
  return wanted.flatMap(([holds, obstacle]) => (holds ? [] : [obstacle]));
}

if (import.meta.main) {
  const [tag, root = dirname(import.meta.dirname)] = process.argv.slice(2);
  const found = findObstacles(tag ?? '(none)', root);
  for (const line of found) console.log(line);
  process.exitCode = found.length === 0 ? 0 : 1;
}
