/**
 * Builds the browser files if their sources have changed: the client in one file, and the board of the market example.
 *
 *   node scripts/browser-build.ts
 *
 * Prints the folder of the board, which is named by a hash of its sources.
 */
import { createHash } from 'node:crypto';
import { existsSync, globSync } from 'node:fs';
import { cp, mkdir, readdir, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(import.meta.dirname);
const boards = join(root, 'dist/board');
const sources = ['client/**/*', 'examples/market/board/**/*', 'scripts/browser-*.ts', 'package-lock.json'];

async function fingerprint(): Promise<string> {
  const hash = createHash('sha256');
  const files = globSync(sources, { cwd: root, withFileTypes: true }).filter((entry) => entry.isFile());
  for (const path of files.map((entry) => join(entry.parentPath, entry.name)).toSorted())
    hash
      .update(path.slice(root.length))
      .update('\0')
      .update(await readFile(path));
  return hash.digest('hex').slice(0, 16);
}

async function buildBoard(outDir: string): Promise<void> {
  const { build } = await import('vite');
  await build({
    root: join(root, 'examples/market/board'),
    base: '/dev/',
    configFile: false,
    publicDir: false,
    logLevel: 'warn',
    oxc: { jsx: { runtime: 'automatic' } },
    resolve: {
      alias: [
        { find: /^pgfresh\/client$/, replacement: join(root, 'client/index.ts') },
        { find: /^pgfresh\/react$/, replacement: join(root, 'client/react.ts') },
      ],
    },
    build: { outDir, emptyOutDir: true, assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  });
  const font = dirname(fileURLToPath(import.meta.resolve('@fontsource-variable/inter/package.json')));
  await cp(join(font, 'LICENSE'), join(outDir, 'assets/inter-license.txt'));
}

async function main(): Promise<string> {
  const folder = join(boards, await fingerprint());
  if (existsSync(folder)) return folder;
  // Another process may build the same. The folder is renamed only when complete, and the first one wins.
  const draft = `${folder}.${process.pid}`;
  const { buildBrowserClient } = await import('./browser-client.ts');
  await Promise.all([buildBrowserClient(), buildBoard(draft)]);
  await mkdir(boards, { recursive: true });
  await rename(draft, folder).catch(() => rm(draft, { recursive: true }));
  for (const name of await readdir(boards))
    if (join(boards, name) !== folder && !name.includes('.'))
      await rm(join(boards, name), { recursive: true, force: true });
  return folder;
}

console.log(await main());
