import type { JobContext } from '../config/index.ts';

type JobDatabase = JobContext['db'];

/**
 * The database as one run's handler sees it, with a limit on concurrent statements, so that one run leaves connections
 * to the others. Statements still queued when the run ends are not sent.
 */
export function runDatabase(db: JobDatabase, most: number, signal: AbortSignal): JobDatabase {
  const waiting: (() => void)[] = [];
  let sent = 0;
  const turn = async (): Promise<void> => {
    if (sent < most) sent++;
    // A finished statement hands its slot to the next one.
    else await new Promise<void>((resolve) => waiting.push(resolve)).then(() => signal.throwIfAborted());
  };
  const hand = (): void => {
    const next = waiting.shift();
    if (next) next();
    else sent--;
  };
  return {
    async query<Row extends object>(statement: string, values?: readonly unknown[]): Promise<Row[]> {
      try {
        await turn();
        return await db.query<Row>(statement, values);
      } finally {
        hand();
      }
    },
  };
}
