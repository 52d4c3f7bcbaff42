import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, globSync } from 'node:fs';
import { cp, mkdir, readdir, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const built = join(root, 'dist/board');
const sources = ['examples/market/board/**/*', 'examples/market/site/board.ts', 'client/**/*', 'package-lock.json'];

/** The folder of the board as it is now, built if it is not there yet. It is named by what it was built from. */
export async function builtBoard(): Promise<string> {
  const folder = join(built, await fingerprint());
  if (existsSync(folder)) return folder;
  // A process of its own: the bundler is large, and this one stays.
  const child = spawn(process.execPath, [import.meta.filename, folder], { stdio: ['ignore', 'ignore', 'inherit'] });
  const [code] = (await once(child, 'exit')) as [number | null];
  if (code !== 0) throw new Error('the board could not be built; the reason is above');
  return folder;
}

async function fingerprint(): Promise<string> {
  const hash = createHash('sha256');
  const files = globSync(sources, { cwd: root, withFileTypes: true }).filter((entry) => entry.isFile());
  for (const path of files.map((entry) => join(entry.parentPath, entry.name)).toSorted())
    hash.update(path.slice(root.length)).update('\0').update(await readFile(path));
  return hash.digest('hex').slice(0, 16);
}

async function build(folder: string): Promise<void> {
  const { build: bundle } = await import('vite');
  // Another process may do the same: who is first has made it.
  const draft = `${folder}.${process.pid}`;
  await bundle({
    root: join(root, 'examples/market/board'),
    base: '/dev/',
    configFile: false,
    publicDir: false,
    logLevel: 'warn',
    oxc: { jsx: { runtime: 'automatic' } },
    resolve: {
      alias: {
        'pgfresh/client': join(root, 'client/index.ts'),
        'pgfresh/react': join(root, 'client/react.ts'),
      },
    },
    build: { outDir: draft, emptyOutDir: true, assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  });
  const font = dirname(fileURLToPath(import.meta.resolve('@fontsource-variable/inter')));
  await cp(join(font, 'LICENSE'), join(draft, 'assets/inter-license.txt'));
  await mkdir(dirname(folder), { recursive: true });
  await rename(draft, folder).catch(() => rm(draft, { recursive: true }));
  for (const name of await readdir(built))
    if (join(built, name) !== folder && !name.includes('.')) await rm(join(built, name), { recursive: true });
}

if (import.meta.main) await build(process.argv[2] ?? join(built, await fingerprint()));
