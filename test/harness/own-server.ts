import { rm } from 'node:fs/promises';
import { Database, EmbeddedServer, migrate, readSqlFiles } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { atEnd } from './database.ts';
import { temporaryFolder } from './folder.ts';

/**
 * A migrated database on its own server, for a test that crashes it. Committed data is there afterwards; asynchronous
 * commits are not, unless a synchronous one followed.
 */
export async function startOwnServer(): Promise<string> {
  const events = new Events();
  const dataDir = await temporaryFolder('own');
  const first = new EmbeddedServer({ dataDir, events, fsync: false });
  await first.start();
  const database = new Database({ url: first.url, events, applicationName: 'pgfresh test' });
  await migrate(database, { files: await readSqlFiles(), events });
  // Delays the WAL writer. By a restart, because a reload does not report when it takes effect.
  await database.query(`alter system set wal_writer_delay = '10s'`);
  await database.query('alter system set autovacuum = off');
  await database.close();
  await first.stop();
  const server = new EmbeddedServer({ dataDir, events, fsync: false });
  atEnd(async () => {
    await server.stop();
    await rm(dataDir, { recursive: true, force: true });
  });
  await server.start();
  const url = new URL(server.url);
  url.searchParams.set('options', '-c synchronous_commit=on');
  return url.href;
}
