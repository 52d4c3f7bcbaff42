import { beforeAll, describe, expect, it } from 'vitest';
import { done, JobScene, plpgsql } from './job-scene.ts';

/** The job's session belongs to a superuser. Whoever may register a job must not become one by it. */
let scene: JobScene;
beforeAll(async () => {
  scene = await JobScene.open();
  await scene.ann.session.query(`
    create table ann.seen (who text, session text);
    grant insert on ann.seen to public;
    create table ann.target (at int);
    create function ann.evil() returns int language plpgsql volatile as $$
      begin insert into ann.seen values (current_user, session_user); return 1; end $$;
    create function ann.evil_trigger() returns trigger language plpgsql as $$
      begin insert into ann.seen values (current_user, session_user); set constraints all deferred; insert into ann.target values (new.at + 1); return null; end $$`);
});

const seen = async () => [
  ...new Set((await scene.db.query<{ who: string }>('select who from ann.seen')).map(({ who }) => who)),
];
const runner = () =>
  scene.value<string>(
    `(select oid::regproc::text from pg_proc where proowner = '${scene.ann.name}'::regrole and proname like 'run_as_%')`,
  );

it('a cursor that the commit would read to its end is closed before', async () => {
  const id = await scene.add('holds', `execute 'declare c cursor with hold for select ann.evil()'; ${done()}`);
  expect(await scene.run(id)).toMatchObject({ kind: 'succeeded' });
  expect(await seen()).toEqual([]);
});

describe('what a trigger has put off until the commit', () => {
  it("is done as the job's owner, and refused where more could come after", async () => {
    await scene.ann.session.query(
      'create constraint trigger evil after insert on ann.target deferrable initially deferred for each row when (new.at < 5) execute function ann.evil_trigger()',
    );
    const id = await scene.add('defers', `insert into ann.target values (1); ${done()}`);
    expect(await scene.run(id)).toMatchObject({
      kind: 'failed',
      result: { message: expect.stringContaining('may not write ann.target, which has a trigger that can be put off') },
    });
    expect(await seen()).toEqual([]);
    await scene.ann.session.query('drop trigger evil on ann.target');
    expect(await scene.run(id)).toMatchObject({ kind: 'succeeded' });
  });

  it('nor by an exclusion constraint over a function', async () => {
    await scene.ann.session.query(`
      create function ann.lies(int) returns int language plpgsql immutable as $$ begin perform ann.evil(); return $1; end $$;
      create table ann.excluded (at int, exclude using btree ((ann.lies(at)) with =) deferrable initially deferred)`);
    const id = await scene.add('excludes', `insert into ann.excluded values (1), (2); ${done()}`);
    expect(await scene.run(id)).toMatchObject({
      kind: 'failed',
      result: { message: expect.stringContaining('may not write ann.excluded') },
    });
    expect(await seen()).toEqual([]);
  });

  it('is allowed where it is a foreign key or a plain unique constraint', async () => {
    await scene.ann.session.query(`
      create table ann.parents (at int primary key);
      create table ann.plain (at int unique deferrable initially deferred, parent int references ann.parents deferrable initially deferred)`);
    const id = await scene.add(
      'plain_job',
      `insert into ann.plain values (1, 1); insert into ann.parents values (1); ${done()}`,
    );
    expect(await scene.run(id)).toMatchObject({ kind: 'succeeded' });
  });
});

describe('the function that runs the jobs of a role', () => {
  it("does nothing when its owner makes it run with the caller's rights, whatever he sets with it", async () => {
    await scene.run(await scene.add('first', done()));
    const name = await runner();
    await scene.db
      .query(`create function public.calls(p_name text) returns jsonb language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
      declare v_result jsonb; begin execute format('select %s($1, $2, $3)', p_name) into v_result using 'select ann.evil()', 'ann', '{}'::jsonb; return v_result; end $$`);
    for (const change of [
      'security invoker',
      `security invoker set role = '${scene.ann.name}'`,
      'security invoker set search_path = ann',
    ]) {
      await scene.ann.session.query(`alter function ${name} ${change}`);
      // As call_job_function calls it, which would have made it anew before.
      const call = scene.db.query(`select public.calls('${name}')`);
      await expect(call).rejects.toMatchObject({ code: '42501' });
      expect((await seen()).filter((who) => who !== scene.ann.name)).toEqual([]);
    }
    // The next run makes it as it should be.
    const id = await scene.add('next', done('to_jsonb(current_user)'));
    expect(await scene.run(id)).toMatchObject({ result: { details: scene.ann.name } });
  });

  it('is made again when its owner drops it, from inside a job too', async () => {
    const name = await runner();
    const id = await scene.add('drops_runner', `drop function ${name}; ${done()}`);
    expect(await scene.run(id)).toMatchObject({ kind: 'succeeded' });
    expect(await scene.run(id)).toMatchObject({ kind: 'succeeded' });
    await scene.add('makes_runner', done());
  });

  it('cannot be replaced by its owner, nor called by others', async () => {
    const name = await runner();
    await expect(
      scene.ann.session.query(
        `create or replace function ${name}(text, text, jsonb) returns jsonb language sql as 'select null::jsonb'`,
      ),
    ).rejects.toMatchObject({ code: '42501' });
    const ben = await scene.person('ben');
    await expect(ben.session.query(`select ${name}('select 1', '', '{}')`)).rejects.toMatchObject({ code: '42501' });
  });

  it('goes with the last job of its role, so that the role can go too', async () => {
    const dan = await scene.person('dan');
    await scene.add('of_dan', done(), {}, dan, 'dan');
    const made = () =>
      scene.value<number>(
        `(select count(*)::int from pg_proc where proowner = '${dan.name}'::regrole and proname like 'run_as_%')`,
      );
    expect(await made()).toBe(1);
    await dan.session.query(`delete from pgfresh.scheduled_jobs where name = 'of_dan'`);
    expect(await made()).toBe(0);
  });
});

it('a search path that a function leaves behind means nothing to what comes after', async () => {
  await scene.ann.session.query(`
    create domain ann.jsonb as pg_catalog.jsonb check (ann.evil() = 0);
    create view ann.pg_trigger as select ann.evil() = 1 as tgdeferrable, 0::oid as tgfoid, 0::oid as tgrelid, 0::oid as tgconstrindid;
    grant select on ann.pg_trigger to public;
    create function ann.arrow(pg_catalog.jsonb, text) returns pg_catalog.jsonb language plpgsql as $$ begin perform ann.evil(); return pg_catalog.jsonb_extract_path($1, $2); end $$;
    create operator ann.-> (leftarg = pg_catalog.jsonb, rightarg = text, function = ann.arrow)`);
  const id = await scene.add(
    'bends',
    `set search_path = ann, pg_catalog; return pg_catalog.jsonb_build_object('success', true, 'message', 'done');`,
  );
  expect(await scene.run(id)).toMatchObject({ kind: 'succeeded' });
  expect(await scene.recorded(id)).toBe(1);
  expect(await seen()).toEqual([]);
  expect(await scene.run(await scene.add('after_bends', done()))).toMatchObject({ kind: 'succeeded' });
});

it('a job does not decide about those of others', async () => {
  const eve = await scene.person('eve');
  const id = await scene.add('of_ann', done());
  await eve.session.query(
    plpgsql(
      'eve.meddles()',
      `update pgfresh.scheduled_jobs set paused_until = 'infinity' where name = 'of_ann'; ${done()}`,
    ),
  );
  const meddles = await scene.register({ name: 'meddles', function_name: 'eve.meddles', schedule: '@daily' }, eve);
  expect(await scene.run(meddles)).toMatchObject({
    kind: 'failed',
    result: { message: expect.stringContaining('the job of_ann belongs to') },
  });
  expect(await scene.value(`(select paused_at from pgfresh.scheduled_jobs where id = ${id})`)).toBeNull();
});
