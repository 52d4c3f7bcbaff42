import { codedOr } from '../database/index.ts';

/** Sends statements: a pool or a client of `pg`, or one of our own. */
export interface SqlClient {
  query(text: string, values: unknown[]): Promise<unknown>;
}

/** Sends a statement. An error raised by our functions becomes one of the coded table. */
export async function rowsFrom<Row extends object>(client: SqlClient, text: string, values: unknown[]): Promise<Row[]> {
  const answer = await client.query(text, values).catch((error: unknown) => {
    throw codedOr(error, 'PGF_COMMIT_UNKNOWN');
  });
  return Array.isArray(answer) ? (answer as Row[]) : (answer as { rows: Row[] }).rows;
}
