import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

// The ways are the same from here and from what is built of this file.
const script = fileURLToPath(new URL('../../../scripts/browser-build.ts', import.meta.url));
const boards = fileURLToPath(new URL('../../../dist/board', import.meta.url));

/**
 * The folder of the board, built if its sources have changed. In a process of its own: the bundler is large, and this one
 * stays. The package has no sources of it, and one that is built.
 */
export async function builtBoard(): Promise<string> {
  if (!existsSync(script)) return join(boards, (await readdir(boards))[0]!);
  const { stdout } = await promisify(execFile)(process.execPath, [script]);
  return stdout.trim();
}
