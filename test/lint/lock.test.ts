import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { findFaults } from '../../scripts/lock.ts';

const project = dirname(dirname(import.meta.dirname));

interface Lock {
  packages: Record<string, Record<string, unknown>>;
}

let root: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'pgfresh-lock-'));
});

afterEach(() => {
  rmSync(root, { recursive: true });
});

/** The project's own lock, changed. */
function plant(change: (lock: Lock) => void): void {
  const lock = JSON.parse(readFileSync(join(project, 'package-lock.json'), 'utf8')) as Lock;
  change(lock);
  writeFileSync(join(root, 'package.json'), readFileSync(join(project, 'package.json')));
  writeFileSync(join(root, 'package-lock.json'), JSON.stringify(lock));
}

test('the lock has every package, for every platform', () => {
  expect(findFaults(project)).toEqual([]);
});

test('a missing platform package is refused', () => {
  const name = '@oxlint/binding-win32-x64-msvc';
  let version: unknown;
  plant(({ packages }) => {
    version = packages[`node_modules/${name}`]!['version'];
    delete packages[`node_modules/${name}`];
  });
  expect(findFaults(root)).toEqual([`${name}@${String(version)} is missing; node_modules/oxlint needs it`]);
});

test('a platform package of another version is refused', () => {
  plant(({ packages }) => (packages['node_modules/@oxfmt/binding-darwin-arm64']!['version'] = '0.1.0'));
  expect(findFaults(root)).toEqual([
    expect.stringMatching(
      /^@oxfmt\/binding-darwin-arm64@.* is missing, 0\.1\.0 is there; node_modules\/oxfmt needs it$/,
    ),
  ]);
});

test('a missing package of a package is refused', () => {
  plant(({ packages }) => delete packages['node_modules/pg-pool']);
  expect(findFaults(root)).toEqual([expect.stringMatching(/^pg-pool@.* is missing; node_modules\/pg needs it$/)]);
});

test('a lock that package.json does not agree with is refused', () => {
  plant(({ packages }) => (packages['']!['dependencies'] = { ...(packages['']!['dependencies'] as object), pg: '^7' }));
  expect(findFaults(root)).toEqual([expect.stringMatching(/^pg: package\.json says \^8.*, the lock \^7$/)]);
});

test('a lock that names a registry is refused', () => {
  plant(({ packages }) => (packages['node_modules/pg']!['resolved'] = 'https://registry.example/pg.tgz'));
  expect(findFaults(root)).toEqual([
    "node_modules/pg: names the registry it came from; install with the project's .npmrc",
  ]);
});

test('a package without a hash is refused', () => {
  plant(({ packages }) => delete packages['node_modules/pg']!['integrity']);
  expect(findFaults(root)).toEqual(['node_modules/pg: has no hash']);
});

test('the command prints each fault and fails', () => {
  plant(({ packages }) => delete packages['node_modules/pg']!['integrity']);
  const { stdout, status } = spawnSync(process.execPath, [join(project, 'scripts/lock.ts'), root], {
    encoding: 'utf8',
  });
  expect({ status, first: stdout.split('\n', 1)[0] }).toEqual({
    status: 1,
    first: 'package-lock.json: node_modules/pg: has no hash',
  });
});
