import { beforeAll, describe, expect, it } from 'vitest';
import { migrate, migrationScript, previewMigration, readSqlFiles, type Migration } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { atEnd, createDatabase, openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { statement } from '../harness/server.ts';
import { describeSchemas, differences } from './described-schemas.ts';
import { createReleased, grantedByHand, releasedFile, releases } from './released-database.ts';

const files = await readSqlFiles();
const events = new Events();

const yours = [
  'function pgfresh.my_rule(integer)',
  'table pgfresh.my_notes',
  'trigger my_guard on pgfresh.sources',
  'type pgfresh.my_pair',
  'view pgfresh.my_sources',
];

describe.each(releases)('an upgrade of %s', (version) => {
  let old: Awaited<ReturnType<typeof createReleased>>;
  let migration: Migration;

  beforeAll(async () => {
    old = await createReleased(version);
    const preview = await previewMigration(old.database, files);
    expect(preview.objects.yours).toEqual(yours);
    migration = await migrate(old.database, { files, events });
  });

  it('names what is not of pgfresh, and leaves it alone', async () => {
    expect(migration.objects.yours).toEqual(yours);
    expect(await old.database.query('select pgfresh.my_rule(1) as rule, name from pgfresh.my_sources')).toEqual([
      { rule: true, name: 'market' },
    ]);
    expect(await old.database.query('select data_type from public.my_types')).toEqual([{ data_type: 'quote' }]);
  });

  it('keeps what was under way, and goes on with it', async () => {
    const { database } = old;
    const value = async (text: string) =>
      (await database.query<{ value: unknown }>(`select ${text} as value`))[0]!.value;
    expect(
      await value(`(select jsonb_object_agg(status, count) from (
      select status, count(*) from pgfresh.api_call_queue group by status) as s)`),
    ).toEqual({
      pending: 3,
      running: 2,
      succeeded: 1,
    });
    // By who claimed it before.
    expect(
      await value(`array(select pgfresh.complete_queue_job(id, 100, attempt) from public.claimed order by id)`),
    ).toEqual([false, true, true]);
    const keys = await value(`array(select key from public.claimed order by key)`);
    const rest = await value(
      `array(select job ->> 'key' from jsonb_array_elements(pgfresh.get_queue_batch(10, p_worker => 'new')) as job order by 1)`,
    );
    // Each job once, by the one or by the other.
    expect([...(keys as string[]), ...(rest as string[])].toSorted()).toEqual(['A', 'B', 'C', 'D', 'E', 'F']);
    expect(await value(`(select count(*) from pgfresh.active_subscriptions)`)).toBe(5);
    expect(await value(`(pgfresh.renew_refresh_lock('nightly', (select token from public.held))).reason`)).toBe(
      'renewed',
    );
    expect(await value(`(pgfresh.acquire_refresh_lock('nightly', 'new')).reason`)).toBe('locked');
    await database.query(`insert into public.quote (key, fetched_at) values ('G', pgfresh.clock())`);
    expect(await value(`(select first_seen_at is not null from public.quote where key = 'G')`)).toBe(true);
  });

  it('keeps the runs of scheduled jobs', async () => {
    expect(
      await old.database.query(
        `select j.name, r.state from pgfresh.scheduled_job_runs as r join pgfresh.scheduled_jobs as j on j.id = r.job_id order by 1`,
      ),
    ).toEqual([
      { name: 'often', state: 'waiting' },
      { name: 'report', state: 'running' },
    ]);
  });

  it('has nothing left to do, and one signature for each name', async () => {
    expect((await migrate(old.database, { files, events })).applied).toEqual([]);
    expect(
      await old.database.query(
        `select proname as name from pg_proc where pronamespace::regnamespace::text in ('pgfresh', 'pgfresh_engine')
         group by pronamespace, proname having count(*) > 1`,
      ),
    ).toEqual([{ name: 'is_data_stale' }]);
  });

  it('does the same by the script', async () => {
    const freshUrl = await createDatabase();
    await statement(freshUrl, await releasedFile(version, 'world'));
    const fresh = await describeSchemas(openDatabase(freshUrl));
    const { url, database } = await createReleased(version);
    await database.query(grantedByHand);
    const script = migrationScript(files, await previewMigration(database, files));
    await statement(url, script.replace('\\set ON_ERROR_STOP on', ''));
    expect(differences(await describeSchemas(database), fresh)).toEqual({});
    expect((await migrate(database, { files, events })).applied).toEqual([]);
    await expect(statement(url, script.replace('\\set ON_ERROR_STOP on', ''))).rejects.toThrow('PGF_MIGRATION_NEWER');
  });

  it('works for an owner who is no superuser, with the same result', async () => {
    const urls = [await createDatabase({ empty: true }), await createDatabase({ empty: true })] as const;
    const owner = await createLogin(urls[0], 'pgfresh_evaluator');
    const [one, other] = urls.map((url) => new URL(url).pathname) as [string, string];
    const give = async (name: string) => {
      for (const path of [one, other]) await statement(urls[0], `alter database ${path.slice(1)} owner to ${name}`);
    };
    await give(owner.name);
    atEnd(async () => {
      await give('current_user');
      await statement(urls[1], `drop owned by ${owner.name} cascade`);
    });
    const address = (path: string) => Object.assign(new URL(owner.url), { pathname: path }).href;

    const { database } = await createReleased(version, address(one));
    await migrate(database, { files, events });
    const freshly = openDatabase(address(other));
    await migrate(freshly, { files, events });
    await statement(address(other), await releasedFile(version, 'world'));
    expect(differences(await describeSchemas(database), await describeSchemas(freshly))).toEqual({});
  });
});
