import { databaseUrl, forgetIdentity, statement } from '../harness/server.ts';

/** Does the same on several databases at once: the given one, and copies of it. Throws the first failure when all have ended. */
export async function inLanes(
  url: string,
  count: number,
  work: (laneUrl: string, lane: number) => Promise<void>,
): Promise<void> {
  const name = new URL(url).pathname.slice(1);
  await statement(url, forgetIdentity);
  // Nobody may be connected to what is copied.
  const admin = databaseUrl(url, name === 'postgres' ? 'template1' : 'postgres');
  const others = Array.from({ length: count - 1 }, (_, lane) => `${name}_lane${lane + 1}`);
  for (const other of others) await statement(admin, `create database "${other}" template "${name}"`);
  const ends = await Promise.allSettled(
    [name, ...others].map((database, lane) => work(databaseUrl(url, database), lane)),
  );
  for (const other of others) await statement(admin, `drop database "${other}" with (force)`);
  for (const end of ends) if (end.status === 'rejected') throw end.reason as Error;
}
