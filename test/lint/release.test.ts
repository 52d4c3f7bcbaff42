import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { findObstacles } from '../../scripts/release.ts';

let root: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'pgfresh-release-'));
});

afterEach(() => {
  rmSync(root, { recursive: true });
});

const ready = {
  tag: 'v1.2.0',
  manifest: {
    version: '1.2.0',
    homepage: 'https://example.com',
    repository: { url: 'git+https://example.com/x.git' },
  } as object,
  locked: '1.2.0',
  changelog: '# Changelog\n\n## [1.2.0] - 2027-01-31\n\n## [1.1.0] - 2026-12-01\n',
};

function obstacles(change: Partial<typeof ready>): string[] {
  const { tag, manifest, locked, changelog } = { ...ready, ...change };
  writeFileSync(join(root, 'package.json'), JSON.stringify(manifest));
  writeFileSync(join(root, 'package-lock.json'), JSON.stringify({ version: locked }));
  writeFileSync(join(root, 'CHANGELOG.md'), changelog);
  return findObstacles(tag, root);
}

test('a commit that is ready has no obstacle', () => {
  expect(obstacles({})).toEqual([]);
});

test.each<[string, Partial<typeof ready>, string[]]>([
  ['another tag', { tag: 'v1.3.0' }, ['the tag is v1.3.0, and package.json says 1.2.0']],
  ['another lock', { locked: '1.1.0' }, ['package-lock.json says 1.1.0, and package.json 1.2.0']],
  [
    'an older changelog',
    { changelog: '## [1.1.0] - 2026-12-01\n' },
    ['the newest version of CHANGELOG.md is 1.1.0, and package.json says 1.2.0'],
  ],
  ['no date', { changelog: '## [1.2.0] - unreleased\n' }, ['CHANGELOG.md has no date for 1.2.0']],
  [
    'no address',
    { manifest: { version: '1.2.0' } },
    ['package.json has no repository.url', 'package.json has no homepage'],
  ],
])('%s is an obstacle', (_, change, said) => {
  expect(obstacles(change)).toEqual(said);
});
