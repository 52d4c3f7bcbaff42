import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, it, vi } from 'vitest';

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
