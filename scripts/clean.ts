/**
 * Removes a folder of this project.
 *
 *   node scripts/clean.ts dist
 */
import { rmSync } from 'node:fs';
import { dirname, relative, resolve, sep } from 'node:path';

const root = dirname(import.meta.dirname);
const folder = resolve(root, process.argv[2] ?? '.');
const inside = relative(root, folder);

if (inside === '' || inside.split(sep)[0] === '..') {
  console.error('Expected the name of a folder inside the project. Run: node scripts/clean.ts dist');
  process.exitCode = 2;
} else {
  rmSync(folder, { recursive: true, force: true });
}
