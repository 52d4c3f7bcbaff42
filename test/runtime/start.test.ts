import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { start, type Config, type JobResult, type Pgfresh, type StartOptions } from 'pgfresh';
import { afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { resolveConfig } from '../../src/config/index.ts';
import type { Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { Runtime } from '../../src/runtime/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';

let databaseUrl = '';
let db: Database;
const handles: Pgfresh[] = [];

beforeAll(async () => {
  databaseUrl = await createDatabase();
  db = openDatabase(databaseUrl);
});
afterEach(() => Promise.all(handles.splice(0).map((handle) => handle.stop())));

/** Starts on the test's database, or on another one; what is returned is stopped after the test. */
async function run(options: Partial<StartOptions> = {}, config: Config = {}): Promise<Pgfresh> {
  const handle = await start({
    config: { databaseUrl, logLevel: 'silent', token: 'a token of this test', ...config },
    listen: { port: 0 },
    env: {},
    ...options,
  });
  handles.push(handle);
  return handle;
}

/** Connections of what was started. */
const connections = async (): Promise<number> => {
  const [row] = await db.query<{ count: number }>(
    `select count(*)::int as count from pg_stat_activity
     where datname = current_database() and application_name like 'pgfresh %' and application_name <> 'pgfresh test'`,
  );
  return row!.count;
};

const answers = async ({ address }: Pgfresh, path: string): Promise<number | undefined> =>
  fetch(`${address}${path}`).then(
    ({ status }) => status,
    () => undefined,
  );

describe('a handle', () => {
  it('has an address that answers, is ready, and leaves nothing behind', async () => {
    const handle = await run();
    await handle.ready;
    expect(handle.address).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    expect([await answers(handle, '/readyz'), await answers(handle, '/status')]).toEqual([200, 200]);
    expect(await connections()).toBeGreaterThan(1);
    await handle.stop();
    expect(await answers(handle, '/readyz')).toBeUndefined();
    await expect.poll(() => connections()).toBe(0);
  });

  it('stops once, however often it is asked', async () => {
    const handle = await run({ roles: ['console'] });
    await Promise.all([handle.stop(), handle.stop(), handle[Symbol.asyncDispose]()]);
    await handle.stop();
    expect(await answers(handle, '/readyz')).toBeUndefined();
  });

  it('stops at the end of a block', async () => {
    let inside: Pgfresh;
    {
      await using handle = await run({ roles: ['console'] });
      inside = handle;
      expect(await answers(inside, '/readyz')).toBe(200);
    }
    expect(await answers(inside, '/readyz')).toBeUndefined();
  });

  it('does not listen if it is told so', async () => {
    const handle = await run({ roles: ['planner'], listen: false });
    expect(handle.address).toBeUndefined();
    await expect.poll(() => connections()).toBeGreaterThan(0);
  });

  it('leaves signals and errors to the process', async () => {
    const events = ['SIGINT', 'SIGTERM', 'SIGHUP', 'uncaughtException', 'unhandledRejection'];
    const listeners = (): number[] => events.map((event) => process.listenerCount(event));
    const before = listeners();
    const handle = await run();
    expect(listeners()).toEqual(before);
    await handle.stop();
    expect(listeners()).toEqual(before);
  });

  it('runs beside another one, on the same database or not', async () => {
    const other = await createDatabase({ empty: true });
    const [one, two, three] = await Promise.all([run(), run(), run({ migrate: true }, { databaseUrl: other })]);
    expect(new Set([one.address, two.address, three.address]).size).toBe(3);
    await one.stop();
    expect([await answers(two, '/readyz'), await answers(three, '/readyz')]).toEqual([200, 200]);
  });
});

describe('a start that fails', () => {
  it('stops what it has started', async () => {
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    const { port } = taken.address() as AddressInfo;
    await expect(run({ listen: { port } })).rejects.toMatchObject({ code: 'PGF_PORT_UNAVAILABLE' });
    taken.close();
    await expect.poll(() => connections()).toBe(0);
  });

  it('refuses a database that is not migrated', async () => {
    const empty = await createDatabase({ empty: true });
    await expect(run({}, { databaseUrl: empty })).rejects.toMatchObject({ code: 'PGF_MIGRATION_PENDING' });
  });
});

describe('a stop', () => {
  it('does not wait for a handler beyond the time for draining', async () => {
    const begun = Promise.withResolvers<void>();
    const end = Promise.withResolvers<void>();
    const handler = async (): Promise<JobResult> => {
      begun.resolve();
      await end.promise;
      return { success: true, message: 'late' };
    };
    const jobs = [{ name: 'endless', schedule: '0 0 1 1 *', handler }];
    const handle = await run({ roles: ['scheduler'], listen: false }, { drainTimeout: '100ms', jobs });
    await db.query(`select pgfresh.trigger_scheduled_job('endless')`);
    await begun.promise;
    await handle.stop();
    end.resolve();
  });

  it('gives up on what never ends, and says so', async () => {
    const end = Promise.withResolvers<void>();
    const config = resolveConfig({
      config: { databaseUrl, drainTimeout: '5s', dev: () => ({ stop: () => end.promise }) },
    });
    const runtime = new Runtime({ config, roles: ['console'], events: new Events(), listen: false, dev: true });
    await runtime.start();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const stopped = runtime.stopInTime();
    vi.advanceTimersByTime(15_000);
    vi.useRealTimers();
    await expect(stopped).rejects.toMatchObject({ code: 'PGF_STOP_TIMEOUT', values: { seconds: 15 } });
    end.resolve();
    await runtime.stop();
  });
});

describe('a call that is wrong', () => {
  it.each<[string, unknown, string, RegExp]>([
    ['no options', undefined, 'PGF_START_INVALID', /expected the options to be an object, got undefined/],
    ['no configuration', {}, 'PGF_START_INVALID', /expected config, .* got none/],
    ['an option of another name', { config: {}, role: [] }, 'PGF_START_INVALID', /"role" .* did you mean "roles"/],
    ['roles as text', { config: {}, roles: 'worker' }, 'PGF_START_INVALID', /roles to be a list, got "worker"/],
    ['no role', { config: {}, roles: [] }, 'PGF_START_INVALID', /at least one of planner, .* got none/],
    ['an unknown role', { config: {}, roles: ['workr'] }, 'PGF_ROLE_UNKNOWN', /"workr"; did you mean "worker"/],
    ['a port that is none', { config: {}, listen: { port: 70_000 } }, 'PGF_START_INVALID', /listen\.port .* got 70000/],
    ['a port as the address', { config: {}, listen: 4400 }, 'PGF_START_INVALID', /listen to be an object, got 4400/],
    ['a host that is none', { config: {}, listen: { host: '' } }, 'PGF_START_INVALID', /listen\.host .* got ""/],
    [
      'a gateway out of reach',
      { config: {}, listen: false },
      'PGF_START_INVALID',
      /gateway and console; leave them out/,
    ],
    ['migrate as text', { config: {}, migrate: 'no' }, 'PGF_START_INVALID', /migrate to be true or false, got "no"/],
    ['a wrong configuration', { config: { prot: 1 } }, 'PGF_CONFIG_INVALID', /did you mean "port"/],
  ])('has a code: %s', async (_title, options, code, message) => {
    await expect(start(options as StartOptions)).rejects.toMatchObject({
      code,
      message: expect.stringMatching(message) as string,
    });
  });
});
