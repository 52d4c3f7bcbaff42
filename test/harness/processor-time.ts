import { readFile } from 'node:fs/promises';
import type { Queryable } from '../../src/database/index.ts';

/**
 * What a session has cost the processor so far, in milliseconds; others who use the machine do not count. Where the system
 * does not tell, it is the time that has passed.
 */
export async function processorTime(session: Queryable): Promise<number> {
  const [row] = await session.query<{ pid: number }>('select pg_backend_pid() as pid');
  try {
    const stat = await readFile(`/proc/${row!.pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    // In its own code and in that of the system, in hundredths of a second.
    return (Number(fields[11]) + Number(fields[12])) * 10;
  } catch {
    return performance.now();
  }
}
