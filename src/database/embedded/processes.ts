import { execFile } from 'node:child_process';
import { readdir, readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** A process of this machine. */
export interface RunningProcess {
  readonly pid: number;
  /** The command line with a space after each argument. */
  readonly command: string;
  /** The arguments one by one, where the system tells them apart. */
  readonly argv?: readonly string[];
}

/** Running processes. Zombies have no command line and do not count: they hold nothing any more. */
export async function runningProcesses(): Promise<RunningProcess[]> {
  return process.platform === 'linux' ? fromProc() : fromPs();
}

/**
 * Tells a process from a later one with the same pid: its start time, as text that is only for
 * comparison. Ticks since boot identify nothing without the boot.
 */
export async function bornAt(pid: number): Promise<string | undefined> {
  if (process.platform !== 'linux') {
    const { stdout } = await run('ps', ['-o', 'lstart=', '-p', String(pid)]).catch(() => ({ stdout: '' }));
    return stdout.trim() || undefined;
  }
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  if (stat === undefined) return undefined;
  // The second field is the program's name in brackets and may hold anything; the start time is the 22nd.
  const ticks = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
  const boot = await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => '');
  return `${boot.trim()}:${ticks}`;
}

/** Signals a process, or a group by its negative number. One that is already gone is no error. */
export function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/** Whether the process exists and we may signal it. */
export function maySignal(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function fromProc(): Promise<RunningProcess[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const commands = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')));
  return pids
    .map((pid, index) => ({
      pid: Number(pid),
      command: commands[index]!.replaceAll('\0', ' '),
      argv: commands[index]!.split('\0'),
    }))
    .filter(({ command }) => command !== '');
}

async function fromPs(): Promise<RunningProcess[]> {
  const { stdout } = await run('ps', ['-axww', '-o', 'pid=,args='], { maxBuffer: 64 * 1024 * 1024 });
  return stdout.split('\n').flatMap((line) => {
    const [, pid, command] = /^\s*(\d+) (.*)$/.exec(line) ?? [];
    return pid === undefined ? [] : [{ pid: Number(pid), command: `${command!} ` }];
  });
}
