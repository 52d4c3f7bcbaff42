/** Bundles the client into one file that a page can import without a build step; the gateway serves it. */
import { join } from 'node:path';
import { build } from 'vite';

const root = join(import.meta.dirname, '..');
const folder = join(root, 'dist/live');

export async function buildBrowserClient(outDir = folder): Promise<string> {
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
      // Not as a library: library builds keep white space.
      rolldownOptions: {
        input: join(root, 'client/index.ts'),
        preserveEntrySignatures: 'strict',
        output: { entryFileNames: 'client.js' },
      },
    },
  });
  return join(outDir, 'client.js');
}
