import { rm } from 'node:fs/promises';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { Database, EmbeddedServer, migrate, readSqlFiles } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { temporaryFolder, wholeRunFolder } from './folder.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    /** A login that may create databases, and the migrated database that every test file clones. */
    server: { url: string; template: string };
  }
}

/** One server for the whole run: an embedded one, or yours by DATABASE_URL. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  // Folders of tests and their commands are removed with this one.
  const folder = await wholeRunFolder();
  process.env['TMPDIR'] = folder;
  const own = await startServer();
  const template = `pgfresh_template_${process.pid}`;
  await statement(own.url, `create database ${template}`);
  await migrateTemplate(databaseUrl(own.url, template));
  project.provide('server', { url: own.url, template });
  return async () => {
    await statement(own.url, `drop database if exists ${template}`);
    await own.stop();
    await rm(folder, { recursive: true, force: true });
  };
}

export function databaseUrl(serverUrl: string, database: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${database}`;
  return url.href;
}

export async function statement(url: string, text: string): Promise<void> {
  const client = new pg.Client(url);
  await client.connect();
  try {
    await client.query(text);
  } finally {
    await client.end();
  }
}

/** Removes the database's identity, so that clones are not treated as copies. */
export const forgetIdentity = `update pgfresh_engine.database_identity set identity = ''`;

async function startServer(): Promise<{ url: string; stop: () => Promise<void> }> {
  const given = process.env['DATABASE_URL'];
  // Commands under test must see only the environment that their test gives them.
  delete process.env['DATABASE_URL'];
  if (given) return { url: given, stop: async () => {} };
  const dataDir = await temporaryFolder('test');
  const server = new EmbeddedServer({ dataDir, events: new Events(), fsync: false });
  await server.start();
  // Hundreds of databases come and go: autovacuum would cost more than it is worth, and would make plans
  // and read counts depend on timing.
  await statement(server.url, 'alter system set autovacuum = off');
  await statement(server.url, `alter system set max_wal_size = '256MB'`);
  await statement(server.url, 'select pg_reload_conf()');
  return {
    url: server.url,
    stop: async () => {
      await server.stop();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

async function migrateTemplate(url: string): Promise<void> {
  const events = new Events();
  const database = new Database({ url, events, applicationName: 'pgfresh test' });
  await migrate(database, { files: await readSqlFiles(), events });
  // A clone is a test's new database, not a copy of one with a past.
  await database.query(forgetIdentity);
  await database.close();
}
