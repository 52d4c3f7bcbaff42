import { afterAll } from 'vitest';
import { Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';

let count = 0;

// Roles belong to the whole server, so whoever makes one removes it.
const made: { url: string; name: string }[] = [];
afterAll(async () => {
  for (const { url, name } of made) {
    const admin = new Database({ url, events: new Events(), applicationName: 'pgfresh test', poolSize: 1 });
    await admin.query(`drop owned by ${name} cascade`);
    await admin.query(`drop role ${name}`);
    await admin.close();
  }
});

/** The address by which a new login reaches the database. It is a member of these roles and nothing else, and gone when the file ends. */
export async function createLogin(url: string, ...memberOf: string[]): Promise<{ name: string; url: string }> {
  const name = `pgfresh_test_${process.pid}_${++count}_${Date.now().toString(36)}`;
  const admin = new Database({ url, events: new Events(), applicationName: 'pgfresh test', poolSize: 1 });
  await admin.query(`create role ${name} login password 'of a test'`);
  made.push({ url, name });
  for (const role of memberOf) await admin.query(`grant ${role} to ${name}`);
  await admin.close();
  const address = new URL(url);
  address.username = name;
  address.password = 'of a test';
  return { name, url: address.href };
}
