import { tmpdir } from 'node:os';
import { defineDataType, defineSource, start } from 'pgfresh';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { migrate, readSqlFiles, type Database, type SqlFiles } from '../../src/database/index.ts';
import type { PgfreshError } from '../../src/errors/index.ts';
import { Events } from '../../src/events/index.ts';
import { SchemaWatch } from '../../src/runtime/schema-watch.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { CliProcess } from '../harness/process.ts';
import { Provider } from '../harness/provider.ts';
import { createReleased } from './released-database.ts';

const packaged = await readSqlFiles();
const events = new Events();

describe('a job that an old worker runs', () => {
  let database: Database;
  let files: SqlFiles;
  let job: { id: number; attempt: number };

  beforeEach(async () => {
    ({ database } = await createReleased('0.1.0'));
    // Something that the old version has and the new one does not, whatever else has changed.
    await database.query(`create function pgfresh.gone() returns int language sql as 'select 1'`);
    const gone = { kind: 'function', identity: 'pgfresh.gone()', shape: 'f() integer', defaults: 0 } as const;
    const { manifests } = packaged;
    files = { ...packaged, manifests: { ...manifests, unrecorded: [...manifests.unrecorded, gone] } };
    const [claimed] = await database.query<typeof job>(
      `select id, attempt from pgfresh.claim_jobs((select max(id) from pgfresh.worker), gen_random_uuid(), 1)`,
    );
    job = claimed!;
  });

  const stops = () => database.query<{ reason: string }>('select reason from pgfresh.spending_stop');
  const isThere = async () =>
    (await database.query<{ there: boolean }>(`select to_regprocedure('pgfresh.gone()') is not null as there`))[0]!
      .there;

  it('is waited for, while nothing new is spent', async () => {
    const upgrade = migrate(database, { files, events, drainMs: 60_000 });
    await expect.poll(stops).toEqual([{ reason: 'pgfresh is being upgraded' }]);
    expect(await database.query(`select pgfresh.get_queue_batch(10) as batch`)).toEqual([{ batch: [] }]);
    expect(await isThere()).toBe(true);
    await database.query('select pgfresh.complete_queue_job($1::bigint, 1, $2::int)', [job.id, job.attempt]);
    await upgrade;
    expect([await isThere(), await stops()]).toEqual([false, []]);
  });

  it('keeps the upgrade from happening if it takes too long, and spending goes on', async () => {
    await expect(migrate(database, { files, events, drainMs: 1 })).rejects.toMatchObject({
      code: 'PGF_UPGRADE_RUNNING',
      values: { jobs: 1, names: 'old worker' },
    });
    expect([await isThere(), await stops()]).toEqual([true, []]);
  });

  it('is not waited for if its worker has lost its lease; an operator’s own stop stays', async () => {
    await database.query(`update pgfresh.worker set lease_until = pgfresh.clock() - interval '1 second'`);
    await database.query(`select pgfresh.stop_spending('by hand')`);
    await migrate(database, { files, events, drainMs: 1 });
    expect([await isThere(), await stops()]).toEqual([false, [{ reason: 'by hand' }]]);
  });
});

describe('a process that runs', () => {
  const install = (database: Database, version: string, breaks: boolean) =>
    database.query(
      `insert into pgfresh_engine.installation (id, version, functions, breaks)
       select max(id) + 1, $1::text, 'of another build', $2::boolean from pgfresh_engine.installation`,
      [version, breaks],
    );

  it('is told of the first upgrade that takes something away', async () => {
    const database = openDatabase(await createDatabase());
    const told = Promise.withResolvers<PgfreshError>();
    let looks = 0;
    const db = {
      query: (...args: Parameters<Database['query']>) => {
        looks++;
        return database.query(...args);
      },
    } as Database;
    const watch = new SchemaWatch({ db, events, files: packaged, onReplaced: told.resolve, intervalMs: 1 });
    onTestFinished(() => watch.stop());
    let isTold = false;
    void told.promise.then(() => (isTold = true));
    await watch.start();
    await install(database, '9.0.0', false);
    const before = looks;
    await expect.poll(() => looks).toBeGreaterThan(before + 2);
    expect(isTold).toBe(false);
    await install(database, packaged.version, true);
    expect(await told.promise).toMatchObject({ code: 'PGF_BUILD_REPLACED' });
  });

  it('stops by itself, with the exit code for a newer database', async () => {
    const url = await createDatabase();
    const child = new CliProcess(['run', '--roles', 'planner,console', '--json'], {
      cwd: tmpdir(),
      env: { DATABASE_URL: url, PGFRESH_PORT: '0' },
    });
    await child.printed(/"ready": true/);
    await install(openDatabase(url), '9.0.0', true);
    expect(await child.exit).toBe(5);
    expect(child.stdout).toContain('PGF_MIGRATION_NEWER');
    expect(child.stderr).toMatch(
      /"type":"process.stopping","reason":"A newer pgfresh migrated this database to version 9.0.0/,
    );
    expect(child.stderr).toContain('"type":"process.stopped"');
  });

  it.each(['planner,console', 'worker', 'scheduler', 'gateway'])(
    'as %s stops with that exit code when an upgrade waits for it, and does not start again until it is over',
    async (roles) => {
      const url = await createDatabase();
      const database = openDatabase(url);
      const run = () =>
        new CliProcess(['run', '--roles', roles, '--json'], {
          cwd: tmpdir(),
          env: { DATABASE_URL: url, PGFRESH_PORT: '0', PGFRESH_TOKEN: 'a token of this test' },
        });
      const child = run();
      await child.printed(/"ready": true/);
      await database.query(
        `update pgfresh_engine.installation set drain_until = pgfresh.clock() + interval '1 minute'`,
      );
      expect(await child.exit).toBe(5);
      expect(child.stdout).toContain('PGF_PROCESS_OUTDATED');
      expect(child.stderr).toMatch(
        /"type":"process.stopping","reason":"This process uses protocol 1, and the database requires protocol 2 or later/,
      );
      expect(await database.query('select from pgfresh_engine.process')).toEqual([]);
      const early = run();
      expect(await early.exit).toBe(5);
      expect(early.stdout).toContain('PGF_PROCESS_OUTDATED');
    },
  );

  it('is waited for no longer than the upgrade has patience, and named; then it may start again', async () => {
    const database = openDatabase(await createDatabase());
    await database.query(`
      create function pgfresh_engine.gone() returns int language sql as 'select 1';
      insert into pgfresh_engine.manifest (kind, identity, classid, objid, ours)
        values ('function', 'pgfresh_engine.gone()', 'pg_proc'::regclass, 'pgfresh_engine.gone()'::regprocedure, true);
      select pgfresh_engine.register_process('worker', 'deaf')`);
    const functions = packaged.functions.map((file, place) => (place === 0 ? { ...file, hash: 'of 9.0.0' } : file));
    const files = { ...packaged, functions, version: '9.0.0' };
    await expect(migrate(database, { files, events, drainMs: 1 })).rejects.toMatchObject({
      code: 'PGF_UPGRADE_PROCESSES',
      values: { names: 'worker deaf' },
    });
    await database.query(`select pgfresh_engine.register_process('worker', 'another')`);
    await database.query(`update pgfresh_engine.process set lease_until = pgfresh.clock()`);
    await migrate(database, { files, events, drainMs: 1 });
  });

  it('finishes the jobs that it has begun, then stops: none is lost, and none is fetched twice', async () => {
    const url = await createDatabase();
    const database = openDatabase(url);
    await database.query(`
      create table public.quote (symbol text primary key, price numeric, fetched_at timestamptz);
      create function pgfresh_engine.gone() returns int language sql as 'select 1';
      insert into pgfresh_engine.manifest (kind, identity, classid, objid, ours)
        values ('function', 'pgfresh_engine.gone()', 'pg_proc'::regclass, 'pgfresh_engine.gone()'::regprocedure, true)`);
    const provider = await Provider.start();
    const held: (() => void)[] = [];
    let isHeld = true;
    provider.answers.set('*', ({ url: path }, response) => {
      const body = JSON.stringify({ symbol: path!.slice(1), price: 1 });
      const answer = () => response.writeHead(200, { 'content-type': 'application/json' }).end(body);
      if (isHeld) held.push(answer);
      else answer();
    });
    const handle = await start({
      config: {
        databaseUrl: url,
        logLevel: 'silent',
        dataTypes: [
          defineDataType({
            name: 'quote',
            source: defineSource({ name: 'market', baseUrl: provider.url, allowPrivateAddresses: true }),
            table: 'quote',
            key: 'symbol',
            timestamp: 'fetched_at',
            ttl: '1h',
            schema: z.object({ symbol: z.string(), price: z.number() }),
            request: (key) => ({ url: `/${key}` }),
            rows: (row) => row,
          }),
        ],
      },
      roles: ['worker'],
      listen: false,
      env: {},
    });
    onTestFinished(() => handle.stop());
    const queue = (keys: string) =>
      database.query(`select pgfresh.queue_refresh_if_not_exists(key, 'quote') from unnest($1::text[]) as key`, [keys]);
    await queue('{A,B,C}');
    await expect.poll(() => held.length).toBe(3);

    const functions = packaged.functions.map((file, place) => (place === 0 ? { ...file, hash: 'of 9.0.0' } : file));
    const upgrade = migrate(database, { files: { ...packaged, functions, version: '9.0.0' }, events, drainMs: 60_000 });
    await expect
      .poll(() => database.query('select from pgfresh_engine.installation where drain_until is not null'))
      .toHaveLength(1);
    await queue('{D,E}');
    isHeld = false;
    held.forEach((answer) => answer());
    expect((await upgrade).objects.dropped).toEqual(['function pgfresh_engine.gone()']);

    expect(await database.query('select key, status from pgfresh.api_call_queue order by key')).toEqual([
      { key: 'A', status: 'succeeded' },
      { key: 'B', status: 'succeeded' },
      { key: 'C', status: 'succeeded' },
      expect.objectContaining({ key: 'D' }),
      expect.objectContaining({ key: 'E' }),
    ]);
    const connections = () =>
      database.query(
        `select from pg_stat_activity where datname = current_database() and application_name like 'pgfresh worker%'`,
      );
    await expect.poll(connections, { timeout: 20_000 }).toEqual([]);
    expect(await database.query('select from pgfresh_engine.installation where drain_until is not null')).toEqual([]);
    // What came after belongs to it until it stops; nobody has fetched anything twice.
    expect(new Set(provider.asked).size).toBe(provider.asked.length);
  });
});
