import { rm } from 'node:fs/promises';
import { Database, EmbeddedServer, migrate, readSqlFiles, type Queryable } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { atEnd, createDatabase, openDatabase } from './database.ts';
import { temporaryFolder } from './folder.ts';

/** A migrated database with pg_stat_statements; on a server of our own if the given one lacks it. */
export async function createCountingDatabase(): Promise<string> {
  const url = await createDatabase();
  const db = openDatabase(url);
  const [row] = await db.query<{ libraries: string }>(
    `select current_setting('shared_preload_libraries') as libraries`,
  );
  const counting = row!.libraries.includes('pg_stat_statements') ? url : await startCountingServer();
  const own = openDatabase(counting);
  await own.query('create extension pg_stat_statements');
  return counting;
}

/** Counts statements that contain a word, from now on. */
export async function countStatements(db: Queryable, word: string): Promise<() => Promise<number>> {
  const count = async (): Promise<number> => {
    const [row] = await db.query<{ calls: number }>(
      `select coalesce(sum(calls), 0)::int as calls from pg_stat_statements
       where dbid = (select oid from pg_database where datname = current_database()) and strpos(query, $1::text) > 0 and strpos(query, 'pg_stat_statements') = 0`,
      [word],
    );
    return row!.calls;
  };
  const before = await count();
  return async () => (await count()) - before;
}

async function startCountingServer(): Promise<string> {
  const dataDir = await temporaryFolder('statements');
  const events = new Events();
  const server = new EmbeddedServer({ dataDir, events, fsync: false });
  atEnd(async () => {
    await server.stop();
    await rm(dataDir, { recursive: true, force: true });
  });
  await server.start();
  const db = new Database({ url: server.url, events, applicationName: 'pgfresh test' });
  await migrate(db, { files: await readSqlFiles(), events });
  await db.close();
  return server.url;
}
