import { readdir, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { beforeEach, describe, expect, it } from 'vitest';
import { migrate, previewMigration, readSqlFiles, uninstall, type Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { createLogin } from '../harness/login.ts';
import { runCli } from '../harness/process.ts';
import { createReleased } from './released-database.ts';

const files = await readSqlFiles();
const events = new Events();
let database: Database;
let url: string;

beforeEach(async () => {
  ({ database, url } = await createReleased('0.1.0'));
});

describe('a view of a user', () => {
  it.each(['scheduled_job_status', 'open_jobs', 'nodes_of_mine', 'api_call_queue'])('over %s stays', async (name) => {
    await database.query('create table pgfresh.nodes_of_mine (id int)');
    await database.query(`create view public.mine as select * from pgfresh.${name}`);
    const before = await database.query(`select attname, atttypid from pg_attribute where attrelid = 'mine'::regclass`);
    await previewMigration(database, files);
    await migrate(database, { files, events });
    await database.query('select * from public.mine');
    expect(
      await database.query(`select attname, atttypid from pg_attribute where attrelid = 'mine'::regclass`),
    ).toEqual(before);
  });

  it.each([
    ['job_status', 'view pgfresh.job_status'],
    ['nodes', 'table pgfresh.nodes'],
    ['scheduler', 'table pgfresh.scheduler'],
  ])('over %s, which goes, is named before anything is done', async (name, needed) => {
    await database.query(`
      create view public.mine as select * from pgfresh.${name};
      create view public.over_mine as select * from public.mine`);
    const names = `view public.mine (needs ${needed}), view public.over_mine (needs ${needed})`;
    const refusal = { code: 'PGF_UPGRADE_BLOCKED', values: { names } };
    await expect(previewMigration(database, files)).rejects.toMatchObject(refusal);
    await expect(migrate(database, { files, events })).rejects.toMatchObject(refusal);
    expect(await database.query(`select to_regclass('pgfresh.${name}') is not null as there`)).toEqual([
      { there: true },
    ]);
  });

  it('is dropped and made again where that was asked for, with its owner, rights, options and comments', async () => {
    const reader = await createLogin(url);
    const owner = await createLogin(url);
    await database.query(`
      grant usage, create on schema public to ${owner.name}; grant usage on schema pgfresh to ${owner.name};
      grant select on pgfresh.nodes to ${owner.name};
      create view public.mine with (security_barrier = true) as select id, name from pgfresh.nodes where id > 0;
      comment on view public.mine is 'It''s mine.'; comment on column public.mine.id is 'A number.';
      create view public.over_mine as select id from public.mine;
      alter view public.mine owner to ${owner.name}; alter view public.over_mine owner to ${owner.name};
      grant select on public.mine to ${reader.name} with grant option; grant update (id) on public.mine to public`);
    const describeView = () =>
      database.query(`
        select c.relname, c.relowner::regrole::text as owner, c.relacl::text as rights, c.reloptions, obj_description(c.oid) as comment,
          array(select (a.attname, a.attacl, col_description(c.oid, a.attnum))::text from pg_attribute as a where a.attrelid = c.oid and a.attnum > 0) as columns
        from pg_class as c where c.relname in ('mine', 'over_mine') order by 1`);
    const before = await describeView();
    const preview = await previewMigration(database, files, true);
    expect(preview.objects.dropped).toContain('view pgfresh.job_status');
    await migrate(database, { files, events, recreateDependants: true });
    // It reads the view of that name now.
    expect(await describeView()).toEqual(before);
    expect(await database.query(`select pg_get_viewdef('public.mine') like '%pgfresh.nodes%' as over`)).toEqual([
      { over: true },
    ]);
  });

  it('gets no rights from default privileges when it is made again', async () => {
    const [reader, owner] = [await createLogin(url), await createLogin(url)];
    await database.query(`
      grant usage, create on schema public to ${owner.name};
      alter default privileges in schema public grant all on tables to ${reader.name}, ${owner.name};
      alter default privileges grant select on tables to public;
      create view public.mine as select id, name from pgfresh.nodes;
      revoke all on public.mine from public, ${reader.name}, ${owner.name};
      create view public."it's ""mine""" as select id from pgfresh.nodes;
      revoke all on public."it's ""mine""" from public, ${reader.name}, ${owner.name};
      alter view public."it's ""mine""" owner to ${owner.name};
      grant select on public."it's ""mine""" to public`);
    const rights = () => database.query(`select relname, relacl::text from pg_class where relname ~ 'mine' order by 1`);
    const before = await rights();
    await migrate(database, { files, events, recreateDependants: true });
    expect(await rights()).toEqual(before);
  });

  it('that cannot be made again for the new version changes nothing', async () => {
    await database.query('create view public.mine as select jobs from pgfresh.job_status');
    await expect(migrate(database, { files, events, recreateDependants: true })).rejects.toMatchObject({
      code: 'PGF_UPGRADE_DEPENDANT',
      values: { name: 'public.mine' },
    });
    await database.query('select * from public.mine');
  });

  it('has its definition printed by --sql', async () => {
    await database.query('create view public.mine as select * from pgfresh.job_status');
    const { code, stdout, stderr } = await runCli(['migrate', '--sql'], {
      cwd: tmpdir(),
      env: { DATABASE_URL: url },
    });
    expect(code).toBe(4);
    expect(stderr).toContain('PGF_UPGRADE_BLOCKED');
    expect(stdout).toMatch(/^drop view .*mine;$/m);
    expect(stdout).toMatch(/^create view .*mine as$/m);
    expect(stdout).toContain('alter view');
  });
});

it('a function that a user has under one of our names stays where it is', async () => {
  await database.query(`
    create function pgfresh.refuse(text) returns int language sql as 'select 1';
    create function pgfresh.check_1(int) returns int language sql as 'select 2';
    create function pgfresh.run_as_1(int) returns int language sql as 'select 3'`);
  const { objects } = await migrate(database, { files, events });
  expect(objects.yours).toContain('function pgfresh.refuse(text)');
  expect(await database.query(`select pgfresh.refuse(''), pgfresh.check_1(1), pgfresh.run_as_1(1)`)).toEqual([
    { refuse: 1, check_1: 2, run_as_1: 3 },
  ]);
});

it('uninstall of a release that recorded no objects names what users have in its schema', async () => {
  await expect(uninstall(database)).rejects.toMatchObject({
    code: 'PGF_UNINSTALL_BLOCKED',
    values: { names: 'table pgfresh.my_notes' },
  });
  await database.query('alter table pgfresh.my_notes set schema public');
  expect((await uninstall(database)).dependents).toContain('function pgfresh.my_rule(integer)');
  await database.query('select * from my_notes');
});

it('numbered files say at their top which tables and views they drop', async () => {
  const folder = 'sql/migrations';
  for (const name of await readdir(folder)) {
    // Those of 0.1.0 are applied by no upgrade.
    if (name < '032') continue;
    const text = await readFile(`${folder}/${name}`, 'utf8');
    const dropped = [...text.matchAll(/^\s*drop (table|view) (?:if exists )?\w+\.(\w+)/gm)].map(
      (match) => `${match[1]} ${match[2]}`,
    );
    const said = /^-- drops: (.+)$/m.exec(text)?.[1]?.split(', ') ?? [];
    expect([name, said]).toEqual([name, dropped]);
  }
});
