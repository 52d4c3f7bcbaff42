import { readFileSync } from 'node:fs';
import { Problem } from '../problem.ts';

/** Node.js raises its own limit as far as it may; the bench fails if that is too low. */
export function requireFiles(sockets: number): void {
  const spare = 500;
  const allowed = hardLimit();
  if (allowed >= sockets + spare) return;
  throw new Problem(
    `A process may open ${allowed} files here, and this bench needs ${sockets + spare}. ` +
      'Run "ulimit -Hn 20000" as root, or raise the limit of your login, and start it again.',
  );
}

function hardLimit(): number {
  try {
    const limit = /^Max open files +\S+ +(\S+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
    return limit === 'unlimited' ? Infinity : Number(limit);
  } catch {
    // Other systems report it elsewhere; there the first refused connection tells.
    return Infinity;
  }
}
