import { readFile } from 'node:fs/promises';
import type { Queryable } from '../../src/database/index.ts';

/**
 * CPU time of a session so far, in milliseconds, regardless of other load. Where the system
 * does not report it, elapsed time.
 */
export async function processorTime(session: Queryable): Promise<number> {
  const [row] = await session.query<{ pid: number }>('select pg_backend_pid() as pid');
  try {
    const stat = await readFile(`/proc/${row!.pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    // User and system time, in hundredths of a second.
    return (Number(fields[11]) + Number(fields[12])) * 10;
  } catch {
    return performance.now();
  }
}
