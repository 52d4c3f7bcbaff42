import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pause } from '../../lifecycle/index.ts';
import { ignoreMissing } from './folder.ts';
import { maySignal, type RunningProcess, runningProcesses, sendSignal } from './processes.ts';

/** The name that the server's processes carry in their titles, by which they are found without their postmaster. */
export function clusterName(cluster: string): string {
  return `pgfresh_${createHash('sha256').update(cluster).digest('hex').slice(0, 12)}`;
}

/**
 * Ends what an earlier server left running on the cluster. A postmaster without its pgfresh is asked to shut down;
 * processes without their postmaster, of which a busy one would run its query to the end and keep any new server
 * out, are ended at once, as the postmaster would have done.
 */
export async function endLeftovers(cluster: string, patience = 20_000): Promise<void> {
  const deadline = performance.now() + patience;
  const signalled = new Set<number>();
  for (;;) {
    // Not by its pid file alone: a server that was just started has not written it yet.
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
  // Whoever likes may start a process that calls itself by our names; if it is another user's, it is not ours.
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
 * PostgreSQL refuses to start while the recorded process exists, also when the number went to a stranger since. It
 * ignores the number of its own parent; so that is written there, and the check of the shared memory, which the rest
 * of the file is for, stays in force.
 */
async function disownPid(cluster: string): Promise<void> {
  const path = join(cluster, 'postmaster.pid');
  const text = await readFile(path, 'utf8').catch(ignoreMissing);
  if (text !== undefined) await writeFile(path, text.replace(/^-?\d+/, String(process.pid)));
}
