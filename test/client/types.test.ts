import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect, it, vi } from 'vitest';

// The compiler uses all cores for seconds, and longer on a busy machine.
vi.setConfig({ testTimeout: 120_000 });

const root = join(import.meta.dirname, '../..');

/** The compiler's errors in a project; empty if there are none. */
async function objectionsTo(project: string): Promise<string> {
  const compiler = spawn(join(root, 'node_modules/.bin/tsc'), ['--noEmit', '-p', project], { cwd: root });
  const [output] = await Promise.all([text(compiler.stdout), once(compiler, 'exit')]);
  return output;
}

it('a typo in the name of a data type or of a column does not compile', async () => {
  expect(await objectionsTo('test/client/types')).toBe('');
});
