import { databaseUrl, forgetIdentity, statement } from '../harness/server.ts';

/** Runs the same on several databases at once: the given one and its copies. At the end throws the first failure. */
export async function inLanes(
  url: string,
  count: number,
  work: (laneUrl: string, lane: number) => Promise<void>,
): Promise<void> {
  const name = new URL(url).pathname.slice(1);
  await statement(url, forgetIdentity);
  // No session may be connected to a database that is copied.
  const admin = databaseUrl(url, name === 'postgres' ? 'template1' : 'postgres');
  const others = Array.from({ length: count - 1 }, (_, lane) => `${name}_lane${lane + 1}`);
  for (const other of others) await statement(admin, `create database "${other}" template "${name}"`);
  const ends = await Promise.allSettled(
    [name, ...others].map((database, lane) => work(databaseUrl(url, database), lane)),
  );
  for (const other of others) await statement(admin, `drop database "${other}" with (force)`);
  for (const end of ends) if (end.status === 'rejected') throw end.reason as Error;
}
