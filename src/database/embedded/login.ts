import pg from 'pg';
import { databaseName, userName } from './cluster.ts';

export interface Login {
  readonly port: number;
  readonly password: string;
}

export function loginUrl({ port, password }: Login): string {
  return `postgres://${userName}:${password}@127.0.0.1:${port}/${databaseName}`;
}

/** Logs in, to verify that the password fits the server, and creates our database if it is missing. */
export async function ensureDatabase({ port, password }: Login): Promise<void> {
  const client = new pg.Client({
    host: '127.0.0.1',
    port,
    user: userName,
    password,
    database: 'postgres',
    ssl: false,
    application_name: 'pgfresh start',
    connectionTimeoutMillis: 10_000,
  });
  // If the server dies meanwhile, an error outside of a query would end our process.
  client.on('error', () => {});
  try {
    await client.connect();
    const { rowCount } = await client.query('select from pg_database where datname = $1::name', [databaseName]);
    if (rowCount === 0) await client.query(`create database ${databaseName}`);
  } finally {
    await client.end();
  }
}
