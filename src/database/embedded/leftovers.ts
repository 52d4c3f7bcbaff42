import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pause } from '../../lifecycle/index.ts';
import { ignoreMissing } from './folder.ts';
import { maySignal, type RunningProcess, runningProcesses, sendSignal } from './processes.ts';

/** The name in the titles of the server's processes, by which we find them without their postmaster. */
export function clusterName(cluster: string): string {
  return `pgfresh_${createHash('sha256').update(cluster).digest('hex').slice(0, 12)}`;
}

/**
 * Ends processes that an earlier server left running on the cluster. A postmaster without its pgfresh is asked to shut
 * down. Processes without their postmaster are killed at once, as the postmaster would have done: a busy one would
 * finish its query and keep any new server out.
 */
export async function endLeftovers(cluster: string, patience = 20_000): Promise<void> {
  const deadline = performance.now() + patience;
  const signalled = new Set<number>();
  for (;;) {
    // Not by its pid file alone: a server that just started has not written it yet.
    const { postmaster, all } = await serverProcesses(cluster);
    if (all.length === 0) break;
    const overdue = performance.now() - deadline;
    if (overdue > 10_000) throw new Error(`an earlier server does not end (process ${all.join(', ')})`);
    if (overdue > 0) all.forEach((pid) => sendSignal(pid, 'SIGKILL'));
    for (const pid of postmaster === undefined ? all : [postmaster]) {
      if (!signalled.has(pid)) sendSignal(pid, postmaster === undefined ? 'SIGQUIT' : 'SIGINT');
      signalled.add(pid);
    }
    await pause(20);
  }
  await disownPid(cluster);
}

async function serverProcesses(cluster: string): Promise<{ postmaster: number | undefined; all: number[] }> {
  const title = `postgres: ${clusterName(cluster)}: `;
  // Any process can use our names; one of another user is not ours.
  const running = (await runningProcesses()).filter(({ pid }) => maySignal(pid));
  const postmaster = running.find((one) => isPostmaster(one, cluster))?.pid;
  const others = running.filter((one) => one.command.startsWith(title)).map(({ pid }) => pid);
  return { postmaster, all: postmaster === undefined ? others : [postmaster, ...others] };
}

function isPostmaster({ argv, command }: RunningProcess, cluster: string): boolean {
  if (argv === undefined) return command.includes(`/postgres -D ${cluster} `);
  const [program, option, folder] = argv;
  return program!.endsWith('/postgres') && option === '-D' && folder === cluster;
}

/**
 * PostgreSQL refuses to start while the recorded process exists, even if another process has that pid now. It ignores
 * its own parent's pid, so we write that one. The rest of the file stays, and with it the check of the shared
 * memory.
 */
async function disownPid(cluster: string): Promise<void> {
  const path = join(cluster, 'postmaster.pid');
  const text = await readFile(path, 'utf8').catch(ignoreMissing);
  if (text !== undefined) await writeFile(path, text.replace(/^-?\d+/, String(process.pid)));
}
