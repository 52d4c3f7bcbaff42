import { spawn } from 'node:child_process';
import { spawnOptions } from './account.ts';
import { type DataFolder, failed } from './folder.ts';
import { lastWords } from './log.ts';
import { sendSignal } from './processes.ts';
import type { Runtime } from './runtime.ts';

/** Runs initdb to its end. On abort, kills it together with its child servers. */
export async function runInitdb(
  runtime: Runtime,
  folder: DataFolder,
  options: readonly string[],
  signal: AbortSignal,
): Promise<void> {
  signal.throwIfAborted();
  const child = spawn(runtime.initdb, options, {
    ...spawnOptions(runtime.account),
    // Detached from the terminal's Ctrl-C, in a process group that can be killed as a whole.
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-16_384)));
  }
  const end = () => void (child.pid !== undefined && sendSignal(-child.pid, 'SIGKILL'));
  signal.addEventListener('abort', end);
  const problem = await new Promise<string | undefined>((resolve) => {
    child.on('error', (error) => resolve(error.message));
    child.on('close', (code) => resolve(code === 0 ? undefined : lastWords(said)));
  });
  signal.removeEventListener('abort', end);
  signal.throwIfAborted();
  if (problem !== undefined) throw failed(folder, 'creating the database cluster', problem);
}
