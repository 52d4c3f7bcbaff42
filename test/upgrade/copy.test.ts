import { beforeAll, describe, expect, it } from 'vitest';
import { migrate, readSqlFiles, type Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { atEnd, createDatabase, openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { databaseUrl, statement } from '../harness/server.ts';
import { everything } from './definitions.ts';
import { fillWithEverything, type Before, type People } from './everything.ts';
import { count, expectToGoOn, findings } from './goes-on.ts';

let url: string;
let people: People;
let before: Before;

/** Copies the database as its own server does: with the same numbers of tables and functions. */
async function copy(): Promise<string> {
  const name = new URL(url).pathname.slice(1);
  const admin = databaseUrl(url, 'template1');
  await statement(admin, `create database ${name}_copy template ${name}`);
  atEnd(() => statement(admin, `drop database if exists ${name}_copy with (force)`));
  return databaseUrl(url, `${name}_copy`);
}

beforeAll(async () => {
  url = await createDatabase({ empty: true });
  people = { owner: (await createLogin(url)).name, viewer: (await createLogin(url)).name };
  const db = openDatabase(url);
  before = await fillWithEverything(db, everything('http://127.0.0.1:9', people.viewer), people);
  await db.close();
});

it('contract 29: a copy of a database goes on', { timeout: 120_000 }, async () => {
  const copied = await copy();
  expect(await findings(copied, people)).toEqual([]);
  await expectToGoOn(copied, people, before);
});

describe('the database itself', () => {
  let db: Database;
  beforeAll(() => {
    db = openDatabase(url);
  });
  const problems = () =>
    db.query<{ data_type: string; problem: string }>('select * from pgfresh_engine.type_problems()');
  const jobProblems = () =>
    db.query(
      'select j.name, p.* from pgfresh.scheduled_jobs as j cross join lateral pgfresh_engine.job_problem(j) as p',
    );

  it('is not taken for a copy', async () => {
    await db.query('select pgfresh_engine.plan_due_pairs()');
    await db.query(`select pgfresh_engine.register_process('gateway', 'another')`);
    expect(await count(db, `pgfresh.warnings where code = 'database_restored'`)).toBe(0);
    expect(await count(db, `pgfresh_engine.process where name = 'dead gateway'`)).toBe(1);
  });

  it('can be migrated again after someone has looked with row security', async () => {
    expect(await count(db, `pg_proc where proname ~ '^read_as_'`)).toBe(1);
    expect((await migrate(db, { files: await readSqlFiles(), events: new Events() })).applied).toEqual([]);
  });

  it('goes on with tables and functions that were made again as they were', async () => {
    expect([await problems(), await jobProblems()]).toEqual([[], []]);
    await db.query(`
      create table shop.kept as table shop.profile;
      alter table shop.profile rename to old;
      create table shop.profile (like shop.old including all);
      alter table shop.profile owner to ${people.owner};
      grant select on shop.profile to pgfresh_evaluator;
      drop table shop.old;
      insert into shop.profile table shop.kept`);
    const functions = await db.query<{ drop: string; text: string; owner: string }>(`
      select format('drop function %s', f.oid::regprocedure) as drop, pg_get_functiondef(f.oid) as text,
        format('alter function %s owner to %s', f.oid::regprocedure, f.proowner::regrole) as owner
      from pg_proc as f where f.pronamespace = 'shop'::regnamespace`);
    for (const { drop, text, owner } of functions) for (const part of [drop, text, owner]) await db.query(part);
    expect([await problems(), await jobProblems()]).toEqual([[], []]);
    // Others' changes are marked as before.
    const [type] = await db.query<{ id: number }>(
      `select type_id as id from pgfresh.data_type_registry where data_type = 'profile'`,
    );
    expect(await count(db, `pg_trigger where tgrelid = 'shop.profile'::regclass`)).toBe(4);
    await db.query('select pgfresh_engine.watch_changes(array[$1::int])', [type!.id]);
    await db.query('delete from pgfresh_engine.change');
    await db.query(`update shop.profile set value = 5 where key = 'S9'`);
    expect(await db.query('select type_id, keys from pgfresh_engine.change')).toEqual([
      { type_id: type!.id, keys: ['S9'] },
    ]);
  });

  it('does not go on with what has become another', async () => {
    await db.query(`
      create or replace function shop.is_old(timestamptz, interval) returns boolean language sql stable as 'select true';
      alter table shop.chart alter column days type bigint;
      alter table shop.holding rename to owned;
      create view shop.holding as table shop.owned;
      grant select on shop.holding to pgfresh_evaluator`);
    expect((await problems()).map(({ data_type, problem }) => [data_type, problem])).toEqual([
      ['chart', 'columns is not what was registered'],
      ['holding', 'table_name is not what was registered'],
      ['profile', 'staleness_function is not what was registered'],
    ]);
  });

  it('lets users write to the table of a data type that has drifted, whatever version its trigger was of', async () => {
    const [type] = await db.query<{ id: number }>(
      `select type_id as id from pgfresh.data_type_registry where data_type = 'chart'`,
    );
    await db.query(`
      create or replace function pgfresh_engine.mark_${type!.id}() returns trigger language plpgsql
        as 'begin insert into pgfresh.what_an_earlier_version_had values (1); return null; end'`);
    await db.query('select pgfresh_engine.renew_types(false)');
    await db.query(`update shop.chart set value = 9 where symbol = 'S1'`);
    expect((await problems()).map(({ data_type }) => data_type)).toContain('chart');
  });
});
