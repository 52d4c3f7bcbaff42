/**
 * Builds the client as one file that a page can import without a build of its own; the gateway serves it.
 *
 *   node scripts/browser-client.ts [--if-outdated]
 */
import { globSync, statSync } from 'node:fs';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const folder = join(root, 'dist/live');

export async function buildBrowserClient(outDir = folder): Promise<string> {
  // Only now, because most starts need no build.
  const { build } = await import('vite');
  await build({
    root,
    configFile: false,
    publicDir: false,
    logLevel: 'warn',
    build: {
      outDir,
      emptyOutDir: false,
      target: 'es2022',
      modulePreload: { polyfill: false },
      // Not as a library: those keep their spaces.
      rolldownOptions: {
        input: join(root, 'client/index.ts'),
        preserveEntrySignatures: 'strict',
        output: { entryFileNames: 'client.js' },
      },
    },
  });
  return join(outDir, 'client.js');
}

function isOutdated(): boolean {
  const built = statSync(join(folder, 'client.js'), { throwIfNoEntry: false })?.mtimeMs ?? 0;
  return globSync('client/*.ts', { cwd: root }).some((file) => statSync(join(root, file)).mtimeMs > built);
}

if (import.meta.main && (!process.argv.includes('--if-outdated') || isOutdated())) await buildBrowserClient();
