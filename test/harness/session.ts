import pg from 'pg';
import type { Queryable } from '../../src/database/index.ts';
import { atEnd } from './database.ts';

/** One connection that keeps its settings and temporary tables after an error. Errors are PostgreSQL's own. */
export async function openSession(url: string): Promise<Queryable> {
  const client = new pg.Client({ connectionString: url, application_name: 'pgfresh test' });
  await client.connect();
  atEnd(() => client.end());
  return {
    query: async <Row extends object>(statement: string | { text: string }, values: readonly unknown[] = []) =>
      (
        await client.query<Row>({
          text: typeof statement === 'string' ? statement : statement.text,
          values: [...values],
        })
      ).rows,
  };
}
