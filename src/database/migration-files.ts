import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { protocol, version, type Protocol } from './release.ts';
import { readManifests, type Manifests } from './upgrade/index.ts';

/** An SQL file to apply: a numbered migration once, the others whenever one of them changes. */
export interface SqlFile {
  /** Its path without the ending, for instance "001_schema" or "engine/queue/claim". */
  readonly name: string;
  readonly text: string;
  readonly hash: string;
}

export interface SqlFiles {
  readonly migrations: readonly SqlFile[];
  readonly functions: readonly SqlFile[];
  readonly manifests: Manifests;
  /** Version of the package that the files belong to. */
  readonly version: string;
  readonly protocol: Protocol;
}

// src/database and dist/database are equally far from the package's root.
const packageRoot = fileURLToPath(new URL('../..', import.meta.url));

export async function readSqlFiles(folder = join(packageRoot, 'sql')): Promise<SqlFiles> {
  const [migrations, functions, manifests] = await Promise.all([
    readFolder(join(folder, 'migrations')),
    readFunctions(folder),
    readManifests(folder),
  ]);
  // Gaps are harmless; two files with one number have no defined order.
  migrations.forEach(({ name }, index) => {
    if (!/^\d{3}_/.test(name)) throw new Error(`migration ${name} should begin with a number of three digits`);
    const before = migrations[index - 1]?.name;
    if (before?.slice(0, 3) === name.slice(0, 3)) throw new Error(`migrations ${before} and ${name} have one number`);
  });
  return { migrations, functions, manifests, version, protocol };
}

async function readFolder(folder: string): Promise<SqlFile[]> {
  const names = (await readdir(folder)).filter((name) => name.endsWith('.sql')).toSorted();
  return Promise.all(names.map((name) => readSqlFile(join(folder, name), name.slice(0, -'.sql'.length))));
}

/** In the order of application: before.sql, the engine, the public API, after.sql. */
async function readFunctions(folder: string): Promise<SqlFile[]> {
  const found = (await readdir(folder, { recursive: true }))
    .filter((path) => path.endsWith('.sql'))
    .map((path) => path.slice(0, -'.sql'.length).replaceAll(sep, '/'))
    .toSorted();
  const parts = [/^before$/, /^engine\//, /^api\//, /^after$/];
  const names = parts.flatMap((part) => found.filter((name) => part.test(name)));
  return Promise.all(names.map((name) => readSqlFile(join(folder, `${name}.sql`), name)));
}

async function readSqlFile(path: string, name: string): Promise<SqlFile> {
  // Line endings depend on the checkout, not on the content.
  const text = (await readFile(path, 'utf8')).replaceAll('\r\n', '\n');
  return { name, text, hash: createHash('sha256').update(text).digest('hex') };
}
