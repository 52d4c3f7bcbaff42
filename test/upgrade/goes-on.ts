import { start, type Pgfresh } from 'pgfresh';
import { expect } from 'vitest';
import type { Queryable } from '../../src/database/index.ts';
import { LiveClient } from '../gateway/live-client.ts';
import { runCommand } from '../harness/command-line.ts';
import { atEnd, openDatabase } from '../harness/database.ts';
import { Provider } from '../harness/provider.ts';
import { everything } from './definitions.ts';
import type { Before, People } from './everything.ts';

const patience = { timeout: 40_000, interval: 100 };

/** A provider of everything, whose answers all have the value 2. */
export async function startProvider(): Promise<Provider> {
  const provider = await Provider.start();
  provider.answers.set('*', (request, response) => {
    const key = decodeURIComponent(request.url!.split('/').at(-1)!);
    const body = JSON.stringify({ key, value: 2 });
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length }).end(body);
  });
  return provider;
}

/** What "pgfresh check" finds wrong. */
export async function findings(url: string, { viewer }: People): Promise<object[]> {
  const env = { DATABASE_URL: url, EVERYTHING_PROVIDER: 'http://127.0.0.1:9', EVERYTHING_VIEWER: viewer };
  const { stdout } = await runCommand(['check', '--json', '--config', 'test/upgrade/everything.config.ts'], { env });
  const { findings: found } = JSON.parse(stdout) as { findings: { state: string }[] };
  return found.filter(({ state }) => state === 'fatal');
}

/** Starts everything on a database that was restored or copied, and sees that it goes on where the old one was. */
export async function expectToGoOn(url: string, people: People, before: Before): Promise<void> {
  const provider = await startProvider();
  const db = openDatabase(url);
  const called = (type: string): string[] => provider.asked.filter((path) => path.startsWith(`/${type}/`));
  const config = { ...everything(provider.url, people.viewer), databaseUrl: url };
  const handle = await start({ config, listen: { port: 0 }, env: {} });
  atEnd(() => handle.stop());
  await expectOldOnesGone(db);
  await expectViewersServed(handle, db, before);
  // What the dead worker had claimed, and what the dead scheduler ran.
  await expect.poll(() => called('profile'), patience).toContain('/profile/S1');
  const handled = `pgfresh.scheduled_job_runs where state = 'succeeded' and message = 'handled'`;
  await expect.poll(() => count(db, handled), patience).toBeGreaterThan(0);
  // Due once, however long ago.
  expect(await count(db, 'shop.tidied')).toBe(1);
  await expectNoBurst(db, () => called('quote').length);
  await expectLeaseFree(db, before);
  expect(await count(db, `pgfresh.warnings where code = 'database_restored'`)).toBe(1);
  expect(await count(db, `pgfresh_engine.change where xid = '900000000000'`)).toBe(0);
  await handle.stop();
}

/** Who had a lease in the old database, and what was made for roles. */
async function expectOldOnesGone(db: Queryable): Promise<void> {
  expect(await count(db, `pgfresh_engine.process where name = 'dead gateway'`)).toBe(0);
  expect(await count(db, `pgfresh_engine.duty where lease_until > pgfresh.clock() + interval '30 minutes'`)).toBe(0);
  expect(await count(db, `pgfresh.active_subscriptions where user_id = 'gone'`)).toBe(0);
  expect(await count(db, `pgfresh.active_subscriptions where user_id = 'ann'`)).toBe(40);
  // Numbered by rows, so they are those that were dumped.
  const forRoles = `pg_proc where proname ~ '^(run|read)_as_[0-9]+$'`;
  const numbered = `exists (select from pgfresh_engine.acting_role as a where proname ~ ('_' || a.id || '$') and proowner = to_regrole(quote_ident(a.name)))`;
  expect(await count(db, `${forRoles} and not ${numbered}`)).toBe(0);
}

/** A stale pair that somebody looks at is fetched, and so is what others write; versions do not go back. */
async function expectViewersServed(handle: Pgfresh, db: Queryable, { version }: Before): Promise<void> {
  const client = await LiveClient.open(handle.address!);
  client.say({ type: 'hello', protocol: 1 });
  await client.next('welcome');
  const pairs = [
    ['profile', 'S3'],
    ['holding', 'S1'],
  ];
  expect(await client.want(pairs)).toEqual(['accepted', 'accepted']);
  const shown = new Map<string, number>();
  let newest = '';
  const until = async (type: string, value: number): Promise<void> => {
    while (shown.get(type) !== value) {
      const said = await client.next();
      const [named] = (said['pair'] ?? []) as readonly string[];
      const [row] = (said['rows'] ?? []) as { value: number }[];
      if (named === undefined || !row) continue;
      shown.set(named, row.value);
      newest = said['version'] as string;
    }
  };
  await until('profile', 2);
  // By its beginning: transactions may be numbered from anywhere.
  expect(newest.split('.')[0]! > version.split('.')[0]!).toBe(true);
  await db.query(`update shop.profile set value = 3 where key = 'S3'`);
  await until('profile', 3);
  await until('holding', 1);
  await client.close();
}

/**
 * Nobody knows what the old database has called within the last minute, so nothing is called for as long. Then at most
 * the rate, which is 10, though 40 are due.
 */
async function expectNoBurst(db: Queryable, calls: () => number): Promise<void> {
  expect(calls()).toBe(0);
  // A minute later.
  await db.query(`update pgfresh_engine.rate_slot set free_at = free_at - interval '1 minute 3 seconds'`);
  await expect.poll(calls, patience).toBe(10);
  // Not even for somebody else who asks now.
  expect(await db.query(`select pgfresh.get_queue_batch(50, '{metered}') as jobs`)).toEqual([{ jobs: [] }]);
  expect(calls()).toBe(10);
}

async function expectLeaseFree(db: Queryable, { token }: Before): Promise<void> {
  const [lease] = await db.query<{ reason: string; token: string }>(
    `select reason, token from pgfresh.acquire_refresh_lock('nightly', 'a test')`,
  );
  expect(lease!.reason).toBe('acquired');
  // Also of those that the old database has handed out since.
  expect(Number(lease!.token)).toBeGreaterThan(token + 1000);
}

export async function count(db: Queryable, what: string): Promise<number> {
  const [row] = await db.query<{ count: number }>(`select count(*)::int as count from ${what}`);
  return row!.count;
}
