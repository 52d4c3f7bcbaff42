import { inject, beforeAll, describe, expect, it } from 'vitest';
import { migrate, pendingMigrations, readSqlFiles } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { atEnd, createDatabase, openDatabase } from '../harness/database.ts';
import {
  installedPrograms,
  InstalledServer,
  restore,
  restoreAsOwner,
  restoreRoles,
} from '../harness/installed-server.ts';
import { statement } from '../harness/server.ts';
import { everything } from './definitions.ts';
import { fillWithEverything, type Before, type People } from './everything.ts';
import { count, expectToGoOn, findings } from './goes-on.ts';
import { createReleased, releases } from './released-database.ts';

// Where no PostgreSQL with pg_dump is installed, copy.test.ts has what can be seen without.
describe.skipIf(installedPrograms === undefined)(
  'contract 29: a database that was dumped',
  { timeout: 120_000 },
  () => {
    const people: People = { owner: `shop_${process.pid}`, viewer: `viewer_${process.pid}` };
    let server: InstalledServer;
    let dump: string;
    let before: Before;

    beforeAll(async () => {
      server = await InstalledServer.start();
      const url = await server.create();
      await statement(url, `create role ${people.owner}; create role ${people.viewer}`);
      const db = openDatabase(url);
      before = await fillWithEverything(db, everything('http://127.0.0.1:9', people.viewer), people);
      await db.close();
      dump = await server.dump(url);
    });

    it('goes on where it was restored on the same server', async () => {
      const url = await server.create();
      await restore(dump, url);
      expect(await findings(url, people)).toEqual([]);
      await expectToGoOn(url, people, before);
    });

    it('goes on on another server, whose PostgreSQL is newer', async () => {
      const { url: newer } = inject('server');
      await restoreRoles(await server.dumpRoles(), newer);
      for (const role of Object.values(people)) atEnd(() => statement(newer, `drop role if exists ${role}`));
      const url = await createDatabase({ empty: true });
      await restore(dump, url);
      expect(await findings(url, people)).toEqual([]);
      await expectToGoOn(url, people, before);
    });

    it('is given back by migrate what it was restored without: the owners and rights of our functions', async () => {
      const url = await server.create();
      await restore(dump, url, '--no-owner', '--no-acl');
      const db = openDatabase(url);
      await expect(db.query(`select pgfresh_engine.register_process('worker', 'early')`)).rejects.toMatchObject({
        code: 'PGF_RESTORE_OWNERS',
      });
      const files = await readSqlFiles();
      expect(await pendingMigrations(db, files)).toHaveLength(files.functions.length);
      await migrate(db, { files, events: new Events() });
      expect(await pendingMigrations(db, files)).toEqual([]);
      const ours = `pg_proc as f where f.pronamespace::regnamespace::text ~ '^pgfresh'`;
      expect(await count(db, `${ours} and has_function_privilege('public', f.oid, 'execute')`)).toBe(0);
      expect(
        await count(
          db,
          `${ours} and f.proname ~ '^ask_(stale|gate|keys|next_keys|rows)$' and f.proowner <> 'pgfresh_evaluator'::regrole`,
        ),
      ).toBe(0);
      await db.query(`select pgfresh_engine.register_process('worker', 'later')`);
      // Whose functions these are is not for us to decide.
      expect(await db.query('select data_type, problem from pgfresh_engine.type_problems()')).toEqual([
        { data_type: 'profile', problem: expect.stringContaining('is not what was registered') as string },
      ]);
      await db.close();
    });

    it('goes on after an owner who is no superuser has dumped, restored and migrated it', async () => {
      const login = `dba_${process.pid}`;
      const owned = async (): Promise<string> => {
        const url = new URL(await server.create());
        await statement(url.href, `alter database ${url.pathname.slice(1)} owner to ${login}`);
        return Object.assign(url, { username: login }).href;
      };
      await statement(
        await server.create(),
        `create role ${login} login createrole; grant pgfresh_evaluator, ${people.owner}, ${people.viewer} to ${login}`,
      );
      const from = await owned();
      const db = openDatabase(from);
      const filled = await fillWithEverything(db, everything('http://127.0.0.1:9', people.viewer), people);
      await db.close();
      const url = await owned();
      await restoreAsOwner(await server.dump(from), url);
      const restored = openDatabase(url);
      await migrate(restored, { files: await readSqlFiles(), events: new Events() });
      await restored.close();
      expect(await findings(url, people)).toEqual([]);
      await expectToGoOn(url, people, filled);
    });

    it.each(releases)('goes on with this version after it was dumped by %s', async (version) => {
      const { url: old, database } = await createReleased(version, await server.create());
      await database.close();
      const url = await server.create();
      await restore(await server.dump(old), url);
      const db = openDatabase(url);
      await migrate(db, { files: await readSqlFiles(), events: new Events() });
      expect(await count(db, 'pgfresh.data_type_registry')).toBeGreaterThan(0);
      expect(await db.query('select * from pgfresh_engine.type_problems()')).toEqual([]);
      expect(
        await db.query(
          'select j.name, p.* from pgfresh.scheduled_jobs as j cross join lateral pgfresh_engine.job_problem(j) as p',
        ),
      ).toEqual([]);
      await db.query('select pgfresh_engine.plan_due_pairs()');
      await db.close();
    });
  },
);
