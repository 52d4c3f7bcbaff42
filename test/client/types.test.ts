import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, it, onTestFinished, vi } from 'vitest';

// A compiler takes both cores for seconds, and on a busy machine for many.
vi.setConfig({ testTimeout: 120_000 });

const root = join(import.meta.dirname, '../..');

/** What the compiler has against a project; nothing if all is well. */
async function objectionsTo(project: string): Promise<string> {
  const compiler = spawn(join(root, 'node_modules/.bin/tsc'), ['--noEmit', '-p', project], { cwd: root });
  const [output] = await Promise.all([text(compiler.stdout), once(compiler, 'exit')]);
  return output;
}

it('a typo in the name of a data type or of a column does not compile', async () => {
  expect(await objectionsTo('test/client/types')).toBe('');
});

it('the examples of docs/guides/showing-data.md compile', async () => {
  const page = await readFile(join(root, 'docs/guides/showing-data.md'), 'utf8');
  const examples = [...page.matchAll(/^```(tsx?)\n(?:\/\/ (\S+)\n)?([\s\S]*?)^```$/gm)];
  expect(examples.length).toBe(6);
  const cache = join(root, 'node_modules/.cache');
  await mkdir(cache, { recursive: true });
  const folder = await mkdtemp(join(cache, 'examples-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  for (const [place, [, kind, name, code]] of examples.entries())
    await writeFile(join(folder, name ?? `${place}.${kind}`), code!);
  const config = {
    extends: join(root, 'tsconfig.json'),
    compilerOptions: { lib: ['es2024', 'dom'], jsx: 'react-jsx', noUnusedLocals: false },
    include: ['.'],
  };
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(config));
  expect(await objectionsTo(folder)).toBe('');
});
