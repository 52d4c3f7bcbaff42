import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { expect, it, vi } from 'vitest';

// A compiler takes both cores for seconds, and on a busy machine for many.
vi.setConfig({ testTimeout: 120_000 });

const root = join(import.meta.dirname, '../..');

it('truth 9: a column, a time, a size or a data type that is mistyped does not compile', async () => {
  const output = await new Promise<string>((resolve) =>
    execFile(join(root, 'node_modules/.bin/tsc'), ['--noEmit', '-p', 'test/config/types'], { cwd: root }, (_, stdout) =>
      resolve(stdout),
    ),
  );
  expect(output).toBe('');
});
