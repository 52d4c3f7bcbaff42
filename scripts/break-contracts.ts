/** Breaks a copy of the project as each contract says, and lists tests that still pass. Numbers select contracts. */
import { spawnSync } from 'node:child_process';
import { cp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { breaks, broken, type Break } from '../test/contracts/breaks.ts';
import { temporaryFolder } from '../test/harness/folder.ts';

const numbers = process.argv.slice(2);
const copy = await temporaryFolder('broken');
for (const name of await readdir('.')) {
  if (name === 'node_modules' || name.startsWith('.git')) continue;
  await cp(name, join(copy, name), { recursive: true });
}
await symlink(resolve('node_modules'), join(copy, 'node_modules'));

const unnoticed: Break[] = [];
try {
  for (const one of breaks.filter(({ contract }) => numbers.length === 0 || numbers.includes(contract))) {
    const file = join(copy, one.file);
    const text = await readFile(file, 'utf8');
    const changed = broken(text, one);
    if (changed === undefined) throw new Error(`${one.file} has no such place: ${one.text}`);
    await writeFile(file, changed);
    const title = `contract 0?${one.contract}:`;
    const { status } = spawnSync('npx', ['vitest', 'run', 'test/contracts', '-t', title], { cwd: copy });
    await writeFile(file, text);
    if (status === 0) unnoticed.push(one);
    console.log(`${status === 0 ? '✗ not noticed' : '✓ noticed'}: contract ${one.contract}, ${one.harm}`);
  }
} finally {
  await rm(copy, { recursive: true, force: true });
}
process.exitCode = unnoticed.length === 0 ? 0 : 1;
