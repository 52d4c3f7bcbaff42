import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const script = fileURLToPath(new URL('../../../scripts/browser-build.ts', import.meta.url));

/** The folder of the board, built if its sources have changed. In a process of its own: the bundler is large, and this one stays. */
export async function builtBoard(): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, [script]);
  return stdout.trim();
}
