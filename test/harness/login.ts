import { atEnd } from './database.ts';
import { statement } from './server.ts';

let count = 0;

/** The URL of a new login for the database. It is a member of only these roles, and dropped when the file ends. */
export async function createLogin(url: string, ...memberOf: string[]): Promise<{ name: string; url: string }> {
  const name = `pgfresh_test_${process.pid}_${++count}_${Date.now().toString(36)}`;
  const grants = memberOf.map((role) => `grant ${role} to ${name};`);
  await statement(url, `create role ${name} login password 'of a test'; ${grants.join(' ')}`);
  // Roles belong to the whole server, so they are not dropped with the database.
  atEnd(() => statement(url, `drop owned by ${name} cascade; drop role ${name}`));
  const address = new URL(url);
  address.username = name;
  address.password = 'of a test';
  return { name, url: address.href };
}
