import { setTimeout as wait } from 'node:timers/promises';
import { afterAll, inject } from 'vitest';
import { Database, type DatabaseOptions } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { databaseUrl, statement } from './server.ts';

let count = 0;

// Hooks cannot be added while tests run, so cleanups are collected here, and run last in, first out.
const cleanups: (() => Promise<void>)[] = [];
afterAll(async () => {
  for (const cleanup of cleanups.toReversed()) await cleanup();
});

/** Registers a cleanup for the end of the test file, before those registered earlier. */
export function atEnd(cleanup: () => Promise<void>): void {
  cleanups.push(cleanup);
}

/** A database for this test file, dropped at its end. Fails the file if a connection is left open. */
export async function createDatabase({ empty = false } = {}): Promise<string> {
  const { url, template } = inject('server');
  const name = `pgfresh_test_${process.pid}_${++count}_${Date.now().toString(36)}`;
  await statement(url, empty ? `create database ${name}` : `create database ${name} template ${template}`);
  cleanups.push(() => dropUnused(url, name));
  return databaseUrl(url, name);
}

/** A pool on the given database, closed when the test file ends. */
export function openDatabase(url: string, options: Partial<DatabaseOptions> = {}): Database {
  const database = new Database({ url, events: new Events(), applicationName: 'pgfresh test', ...options });
  cleanups.push(() => database.close());
  return database;
}

async function dropUnused(url: string, name: string): Promise<void> {
  const admin = new Database({ url, events: new Events(), applicationName: 'pgfresh test' });
  const connections = async (): Promise<number> => {
    const [row] = await admin.query<{ count: number }>(
      'select count(*)::int as count from pg_stat_activity where datname = $1::text',
      [name],
    );
    return row!.count;
  };
  try {
    // A backend ends a moment after its client; one that is still there after ten seconds was never closed.
    const deadline = performance.now() + 10_000;
    let left = await connections();
    while (left > 0 && performance.now() < deadline) {
      await wait(5);
      left = await connections();
    }
    await admin.query(`drop database ${name} with (force)`);
    if (left > 0) throw new Error(`${left} connections to ${name} were left open`);
  } finally {
    await admin.close();
  }
}
