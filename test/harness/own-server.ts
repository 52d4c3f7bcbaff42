import { rm } from 'node:fs/promises';
import { EmbeddedServer, migrate, readSqlFiles } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { atEnd, openDatabase } from './database.ts';
import { temporaryFolder } from './folder.ts';

/** A migrated database on a server of its own, for a test that lets it crash: what is committed is there afterwards. */
export async function startOwnServer(): Promise<string> {
  const events = new Events();
  const dataDir = await temporaryFolder('own');
  const server = new EmbeddedServer({ dataDir, events, fsync: false });
  atEnd(async () => {
    await server.stop();
    await rm(dataDir, { recursive: true, force: true });
  });
  await server.start();
  await migrate(openDatabase(server.url), { files: await readSqlFiles(), events });
  const url = new URL(server.url);
  url.searchParams.set('options', '-c synchronous_commit=on');
  return url.href;
}
