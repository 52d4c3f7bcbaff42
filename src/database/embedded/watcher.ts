import { spawn } from 'node:child_process';
import { type Account, spawnOptions } from './account.ts';

/**
 * Shuts the postmaster down if our process ends without doing so, even by SIGKILL: a shell waits on a pipe
 * that only we hold open. Returns a function that cancels it.
 */
export function watchOver(postmaster: number, account: Account | undefined): () => Promise<void> {
  const script = 'read -r _; kill -INT "$1"';
  const watcher = spawn('/bin/sh', ['-c', script, 'pgfresh-watcher', String(postmaster)], {
    ...spawnOptions(account),
    detached: true,
    stdio: ['pipe', 'ignore', 'ignore'],
  });
  watcher.stdin.on('error', () => {});
  const ended = new Promise<void>((resolve) => {
    watcher.on('exit', () => resolve());
    // Not fatal: without a watcher, the next start ends the orphan.
    watcher.on('error', () => resolve());
  });
  return () => {
    watcher.kill('SIGKILL');
    return ended;
  };
}
