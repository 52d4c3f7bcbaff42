import { beforeAll, describe, expect, it } from 'vitest';
import { migrate, readSqlFiles } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';
import { expectNoChange, expectRefusal } from '../harness/refusal.ts';
import { openSession } from '../harness/session.ts';
import { done, JobScene, plpgsql } from './job-scene.ts';

let scene: JobScene;
beforeAll(async () => {
  scene = await JobScene.open();
  await scene.ann.session.query(plpgsql('ann.f()', done()));
  await scene.ann.session.query(plpgsql('ann.g(jsonb)', done()));
  await scene.ann.session.query(`
    create function ann.number() returns int language sql as 'select 1';
    create function ann.many() returns setof jsonb language sql as 'select null::jsonb';
    create function ann.of_text(text) returns jsonb language sql as 'select null::jsonb';
    create procedure ann.proc() language sql as 'select 1'`);
});

const good = { name: 'job', function_name: 'ann.f', schedule: '0 3 * * *' };
const long = 'x'.repeat(10_240);
const injected = `'; drop schema pgfresh cascade; --`;

it('is registered by the insert of the seed, as it stands', async () => {
  await scene.db.query(plpgsql('public.run_daily_cleanup()', done()));
  await scene.ann.session.query(`
    INSERT INTO pgfresh.scheduled_jobs (name, function_name, schedule, timezone, description)
    VALUES ('daily_cleanup', 'run_daily_cleanup', '0 3 * * *', 'America/New_York', 'Clean up temporary records older than 30 days')`);
  const [row] = await scene.db.query<Record<string, unknown>>(
    `select owner::text, kind, enabled, resolution ->> 'signature' as signature, extract(epoch from timeout)::int as timeout, catch_up, overlap, managed_by from pgfresh.scheduled_jobs where name = 'daily_cleanup'`,
  );
  expect(row).toEqual({
    owner: scene.ann.name,
    kind: 'sql',
    enabled: true,
    signature: 'public.run_daily_cleanup()',
    timeout: 30,
    catch_up: 'once',
    overlap: 'skip',
    managed_by: 'sql',
  });
});

type Refused = 'PGF_JOB_INVALID' | 'PGF_JOB_RIGHT' | { readonly sqlState: string };
const invalid: Refused = 'PGF_JOB_INVALID';
const right: Refused = 'PGF_JOB_RIGHT';
const state = (sqlState: string): Refused => ({ sqlState });

/** What each column refuses, in a row that is good otherwise. The type of a column refuses by itself what it cannot hold. */
const hostile: Readonly<Record<string, readonly (readonly [unknown, Refused])[]>> = {
  id: [[1, state('428C9')]],
  name: [null, '', ' ', long, 'a b', 'a\nb', `é`, '-a', '.a', 'x'.repeat(101), injected].map((value) => [
    value,
    invalid,
  ]),
  description: [['é'.repeat(2_001), invalid]],
  kind: [
    ['', invalid],
    ['SQL', invalid],
    [long, invalid],
    ['handler', right],
  ],
  function_name: [
    null,
    '',
    long,
    'ann.missing',
    'missing',
    'ann.f()',
    'a.b.c',
    'ann.',
    '.f',
    'ann.F',
    '"ann"."f"',
    injected,
    'ann.number',
    'ann.many',
    'ann.of_text',
    'ann.proc',
    'pg_catalog.now',
    `ann.${'f'.repeat(64)}`,
  ].map((value) => [value, invalid]),
  schedule: [
    ...[
      '',
      ' ',
      '* * * *',
      '* * * * * *',
      '@reboot',
      '@never',
      '60 * * * *',
      '* 24 * * *',
      '* * 0 * *',
      '* * 32 * *',
      '* * * 13 *',
      '* * * * 8',
      '*/0 * * * *',
      '5-1 * * * *',
      '0 0 30 2 *',
      '0 0 31 4,6 *',
      '0 0 * 2 1#6',
      'x * * * *',
      long,
      injected,
      '1,,2 * * * *',
    ].map((value) => [value, invalid] as const),
    [null, invalid],
  ],
  timezone: [
    null,
    '',
    'Mars/Olympus',
    'New York',
    '+02:00',
    'PST',
    'EST5',
    'America/New_York5',
    'posix/UTC',
    'localtime',
    '../../etc/passwd',
    long,
    injected,
  ].map((value) => [value, invalid]),
  every_min: [['10 minutes', invalid]],
  every_max: [['10 minutes', invalid]],
  failure_min: [['10 minutes', invalid]],
  failure_max: [['10 minutes', invalid]],
  enabled: [
    [null, invalid],
    ['perhaps', state('22P02')],
  ],
  params: [
    [null, invalid],
    ['[]', invalid],
    ['1', invalid],
    ['null', invalid],
    ['{"a": 1}', invalid],
    [`{"a": "${long.repeat(7)}"}`, invalid],
    ['{', state('22P02')],
    ['{"a": "\\u0000"}', state('22P05')],
  ],
  timeout: [null, '0', '-1 second', '2 days', '1000 years', '1 microsecond'].map((value) => [value, invalid]),
  retries: [
    [null, invalid],
    [-1, invalid],
    [101, invalid],
    ['1e9', state('22P02')],
    [2147483648, state('22003')],
  ],
  retry_base: [null, '0', '-1 minute', '2 days'].map((value) => [value, invalid]),
  catch_up: [null, '', 'twice', 'ALL', long].map((value) => [value, invalid]),
  catch_up_window: ['0', '-1 day', '10 years'].map((value) => [value, invalid]),
  catch_up_max: [null, 0, -1, 10_001].map((value) => [value, invalid]),
  overlap: [null, '', 'both', long].map((value) => [value, invalid]),
  jitter: [
    [null, invalid],
    ['-1 second', invalid],
    ['2 days', invalid],
    ['soon', state('22007')],
  ],
  blackout_dates: [
    [null, invalid],
    ['{NULL}', invalid],
    ['{infinity}', invalid],
    ['{{2026-12-24}}', invalid],
    [`{${Array(1_001).fill('2026-12-24').join(',')}}`, invalid],
    ['{2026-02-30}', state('22008')],
  ],
  paused_by: [['ann', state('42501')]],
  paused_reason: [['because', invalid]],
  paused_until: [
    ['2020-01-01', invalid],
    ['-infinity', invalid],
    ['someday', state('22007')],
  ],
  paused_at: [['2030-01-01', state('42501')]],
  owner: [
    [null, invalid],
    ['pgfresh_worker', right],
    ['0', right],
    ['-', right],
    ['4294967295', right],
    ['nobody_of_this_name', state('42704')],
    [injected, state('42602')],
  ],
  managed_by: [null, '', 'me'].map((value) => [value, invalid]),
  resolution: [['{}', state('42501')]],
  problem: [['none', state('42501')]],
  last_run_at: [['2000-01-01', state('42501')]],
  created_at: [['2000-01-01', state('42501')]],
  updated_at: [['2000-01-01', state('42501')]],
};

it('has hostile values for every column', async () => {
  const columns = await scene.value<string[]>(
    `array(select attname::text from pg_attribute where attrelid = 'pgfresh.scheduled_jobs'::regclass and attnum > 0 and not attisdropped order by attname)`,
  );
  expect(Object.keys(hostile).toSorted()).toEqual(columns.toSorted());
});

it.each(Object.entries(hostile))('%s', async (column, values) => {
  await expectNoChange(scene.db, async () => {
    for (const [value, refused] of values) await expectRefused({ ...good, [column]: value }, refused);
  });
});

async function expectRefused(row: Readonly<Record<string, unknown>>, refused: Refused): Promise<void> {
  const insert = scene.register(row);
  try {
    if (typeof refused === 'string') await expectRefusal(insert, refused);
    else await expect(insert).rejects.toMatchObject({ code: refused.sqlState });
  } catch (cause) {
    throw new Error(JSON.stringify(row).slice(0, 300), { cause });
  }
}

it.each<[string, Readonly<Record<string, unknown>>]>([
  ['neither a schedule nor an interval', { schedule: null }],
  ['both', { every_min: '1 minute' }],
  ['an interval of nothing', { schedule: null, every_min: '0' }],
  ['a negative one', { schedule: null, every_min: '-1 minute' }],
  ['one longer than a year', { schedule: null, every_min: '400 days' }],
  ['the longer time first', { schedule: null, every_min: '15 minutes', every_max: '10 minutes' }],
  ['only the longer time', { schedule: null, every_max: '10 minutes' }],
  [
    'the longer time after failures first',
    { schedule: null, every_min: '1 minute', failure_min: '4 minutes', failure_max: '2 minutes' },
  ],
  ['only the longer time after failures', { schedule: null, every_min: '1 minute', failure_max: '2 minutes' }],
  ['an interval after failures of a schedule', { failure_min: '2 minutes' }],
])('refuses %s', async (_, columns) => {
  await expectRefused({ ...good, ...columns }, invalid);
});

it('says what is nearest to a name that is not there', async () => {
  const hint = async (columns: Readonly<Record<string, unknown>>) =>
    (await expectRefusal(scene.register({ ...good, ...columns }), 'PGF_JOB_INVALID')).hint;
  expect(await hint({ function_name: 'f' })).toBe('There is ann.f(), which returns jsonb.');
  expect(await hint({ function_name: 'ann.F' })).toBe('There is ann.f(), which returns jsonb.');
  expect(await hint({ function_name: 'ann.proc' })).toBe('There is ann.proc(), a procedure.');
  expect(await hint({ timezone: 'new york' })).toBe('Did you mean America/New_York?');
});

it("keeps times as hours, so that a day of the server's zone makes no difference", async () => {
  const id = await scene.register({
    ...good,
    name: 'interval',
    schedule: null,
    every_min: '1 day',
    every_max: '1 month',
    failure_min: '2 hours',
    jitter: '1 minute',
  });
  const [row] = await scene.db.query(
    `select every_min::text, every_max::text, failure_max::text, jitter::text from pgfresh.scheduled_jobs where id = ${id}`,
  );
  expect(row).toEqual({ every_min: '24:00:00', every_max: '720:00:00', failure_max: '02:00:00', jitter: '00:01:00' });
});

describe('who may', () => {
  it('register, change and remove a job is a member of its owner', async () => {
    const ben = await scene.person('ben');
    const id = await scene.register({ ...good, name: 'of_ann' });
    for (const statement of [
      `update pgfresh.scheduled_jobs set enabled = false where id = ${id}`,
      `delete from pgfresh.scheduled_jobs where id = ${id}`,
      `update pgfresh.scheduled_jobs set paused_until = 'infinity' where id = ${id}`,
      `update pgfresh.scheduled_jobs set paused_until = null where id = ${id}`,
    ])
      await expectRefusal(ben.session.query(statement), 'PGF_JOB_RIGHT');
    await expectRefusal(scene.register({ ...good, name: 'as_ann', owner: scene.ann.name }, ben), 'PGF_JOB_RIGHT');
    await expectRefusal(
      scene.ann.session.query(`update pgfresh.scheduled_jobs set owner = '${ben.name}' where id = ${id}`),
      'PGF_JOB_RIGHT',
    );
    await scene.db.query(`grant ${scene.ann.name} to ${ben.name}`);
    await scene.register({ ...good, name: 'as_ann', owner: scene.ann.name }, ben);
    expect(await ben.session.query(`delete from pgfresh.scheduled_jobs where id = ${id} returning name`)).toEqual([
      { name: 'of_ann' },
    ]);
  });

  it("call a function is asked of the job's owner, not of the writer", async () => {
    const dan = await scene.person('dan');
    await dan.session.query(`${plpgsql('dan.own()', done())}; revoke execute on function dan.own() from public`);
    const { hint } = await expectRefusal(
      scene.register({ ...good, name: 'of_dan', function_name: 'dan.own' }),
      'PGF_JOB_INVALID',
    );
    await dan.session.query(hint.replace(/^Run: /, ''));
    await scene.register({ ...good, name: 'of_dan', function_name: 'dan.own' });
  });

  it('read or write anything without the role is nobody', async () => {
    const stranger = await openSession((await createLogin(scene.url)).url);
    await expect(stranger.query('select * from pgfresh.scheduled_jobs')).rejects.toMatchObject({ code: '42501' });
  });
});

describe('a job whose function is gone', () => {
  it('can be paused, disabled and removed, but not changed into another that does not work', async () => {
    const id = await scene.add('vanishing', done());
    await scene.ann.session.query('drop function ann.vanishing()');
    const update = (set: string) =>
      scene.ann.session.query(`update pgfresh.scheduled_jobs set ${set} where id = ${id}`);
    await update(`schedule = '@hourly'`);
    await update(`paused_until = 'infinity', paused_reason = 'it is gone'`);
    await update('enabled = false');
    await expectRefusal(update('enabled = true'), 'PGF_JOB_INVALID');
    await expectRefusal(update('name = name'), 'PGF_JOB_INVALID');
    await scene.ann.session.query(`delete from pgfresh.scheduled_jobs where id = ${id}`);
  });

  it('does not stop others from being registered, changed or looked at', async () => {
    await scene.add('gone', done());
    await scene.ann.session.query('drop function ann.gone()');
    await scene.add('there', done());
    const rows = await scene.db.query<{ name: string }>(
      `select j.name from pgfresh.scheduled_jobs as j cross join lateral pgfresh_engine.job_problem(j) as p where j.name in ('gone', 'there')`,
    );
    expect(rows).toEqual([{ name: 'gone' }]);
  });

  it('or whose owner is gone says so', async () => {
    const fay = await scene.person('fay');
    const id = await scene.add('of_fay', done(), {}, fay, 'fay');
    await scene.db.query(`reassign owned by ${fay.name} to ${scene.ann.name}`);
    expect(await scene.problem(id)).toMatchObject({ problem: expect.stringMatching(/belongs to .* now/) });
  });
});

describe('a pause', () => {
  const started = '2026-01-05T12:00:00Z';
  const pause = (name: string, set: string, { session } = scene.ann) =>
    session.query(`update pgfresh.scheduled_jobs set ${set} where name = '${name}'`);
  const read = async (name: string) => {
    const [row] = await scene.db.query<Record<string, unknown>>(
      `select paused_at is not null as paused, paused_by, paused_reason, paused_until::text, updated_at > created_at as changed
       from pgfresh.scheduled_jobs where name = $1::text`,
      [name],
    );
    return row!;
  };
  const none = { paused: false, paused_by: null, paused_reason: null, paused_until: null };

  it('is a time in paused_until; the row says by whom and since when, and resuming forgets it', async () => {
    await scene.register({ ...good, name: 'paused' });
    await pause('paused', `paused_until = now() + interval '1 day', paused_reason = 'holiday'`);
    const [first] = await scene.db.query(`select paused_at from pgfresh.scheduled_jobs where name = 'paused'`);
    await pause('paused', `paused_until = 'infinity', paused_reason = 'longer'`);
    expect(await read('paused')).toEqual({
      paused: true,
      paused_by: scene.ann.name,
      paused_reason: 'longer',
      paused_until: 'infinity',
      changed: true,
    });
    // Since the first.
    expect(await scene.db.query(`select paused_at from pgfresh.scheduled_jobs where name = 'paused'`)).toEqual([first]);
    await pause('paused', 'paused_until = null');
    expect(await read('paused')).toMatchObject(none);
  });

  it('can be registered with the job', async () => {
    await scene.register({ ...good, name: 'later', paused_until: 'infinity' });
    expect(await read('later')).toMatchObject({ paused: true, paused_by: scene.ann.name });
  });

  it.each([
    `paused_reason = 'because'`,
    `paused_until = null, paused_reason = 'because'`,
    `paused_until = now() - interval '1 second'`,
    `paused_until = '-infinity'`,
    `paused_until = 'infinity', paused_reason = repeat('x', 1001)`,
  ])('%s is refused', async (set) => {
    const name = `refused_${set.length}`;
    await scene.register({ ...good, name });
    await expectRefusal(pause(name, set), 'PGF_JOB_INVALID');
    expect(await read(name)).toMatchObject(none);
  });

  it('that has ended stays until the next one, which begins anew', async () => {
    const id = await scene.register({ ...good, name: 'ended' });
    await scene.db.query('alter table pgfresh.scheduled_jobs disable trigger user');
    await scene.db.query(
      `update pgfresh.scheduled_jobs set paused_at = $2::timestamptz, paused_until = $2::timestamptz + interval '1 hour', paused_reason = 'old' where id = $1::int`,
      [id, started],
    );
    await scene.db.query('alter table pgfresh.scheduled_jobs enable trigger user');
    await pause('ended', 'paused_until = null');
    expect(await read('ended')).toMatchObject({ paused: true, paused_reason: 'old' });
    await pause('ended', `paused_until = 'infinity', paused_reason = 'new'`);
    const [row] = await scene.db.query(
      `select paused_at > $2::timestamptz as anew from pgfresh.scheduled_jobs where id = $1::int`,
      [id, started],
    );
    expect(row).toEqual({ anew: true });
  });

  it('may be written by an operator, and nothing else of the job', async () => {
    const id = await scene.register({ ...good, name: 'operated' });
    const login = await createLogin(scene.url, 'pgfresh_operator');
    const operator = { ...login, session: await openSession(login.url) };
    await pause('operated', `paused_until = 'infinity', paused_reason = 'incident'`, operator);
    expect(await read('operated')).toMatchObject({ paused_by: login.name, paused_reason: 'incident' });
    await pause('operated', 'paused_until = null', operator);
    await pause('operated', 'enabled = false', operator);
    await pause('operated', 'enabled = true', operator);
    for (const column of ['paused_at', 'paused_by', 'schedule', 'name', 'owner', 'resolution'])
      await expect(pause('operated', `${column} = default`, operator)).rejects.toMatchObject({ code: '42501' });
    await expect(operator.session.query(`delete from pgfresh.scheduled_jobs where id = ${id}`)).rejects.toMatchObject({
      code: '42501',
    });
  });

  it('of an operator that changes nothing does not accept a function that another role has replaced', async () => {
    const id = await scene.add('replaced', done());
    const resolution = () =>
      scene.value<string>(`(select resolution ->> 'stamp' from pgfresh.scheduled_jobs where id = ${id})`);
    const before = await resolution();
    await scene.db.query(plpgsql('ann.replaced()', done()));
    const login = await createLogin(scene.url, 'pgfresh_operator');
    const operator = { ...login, session: await openSession(login.url) };
    for (const set of ['paused_until = null', 'enabled = true', `paused_until = 'infinity'`, 'paused_until = null'])
      await pause('replaced', set, operator);
    // Nor does the owner who resumes it.
    await pause('replaced', 'paused_until = null');
    expect(await resolution()).toBe(before);
    await pause('replaced', 'name = name');
    expect(await resolution()).not.toBe(before);
  });
});

describe('a job that is enabled again', () => {
  const enable = (name: string, enabled: boolean, { session }: Pick<typeof scene.ann, 'session'> = scene.ann) =>
    session.query(`update pgfresh.scheduled_jobs set enabled = ${enabled} where name = '${name}'`);

  it('does not accept a function that another role has changed, by an operator or by its owner', async () => {
    const gus = await scene.person('gus');
    await gus.session.query(plpgsql('gus.lent()', done()));
    const id = await scene.register({ ...good, name: 'lent', function_name: 'gus.lent' });
    await gus.session.query(plpgsql('gus.lent()', `perform 1; ${done()}`));
    const changed = { problem: expect.stringContaining('was changed by') };
    expect(await scene.problem(id)).toMatchObject(changed);
    const operator = { session: await openSession((await createLogin(scene.url, 'pgfresh_operator')).url) };
    await enable('lent', false, operator);
    for (const who of [operator, scene.ann]) {
      await expectRefusal(enable('lent', true, who), 'PGF_JOB_INVALID');
      expect(await scene.problem(id)).toMatchObject(changed);
    }
    await scene.ann.session.query(`update pgfresh.scheduled_jobs set name = name where name = 'lent'`);
    await enable('lent', true, operator);
    expect(await scene.problem(id)).toBeUndefined();
    expect(await scene.run(id)).toMatchObject({ kind: 'succeeded' });
  });

  it('follows a function that its own owner has changed', async () => {
    const id = await scene.add('improved', done());
    await enable('improved', false);
    await scene.ann.session.query(plpgsql('ann.improved()', `perform 1; ${done()}`));
    await enable('improved', true);
    expect(await scene.run(id)).toMatchObject({ kind: 'succeeded' });
  });
});

it('what a scheduler says of a job stays until somebody writes the job', async () => {
  const id = await scene.register({ ...good, name: 'said' });
  const read = () =>
    scene.value<unknown>(`(select to_jsonb(j) - 'resolution' from pgfresh.scheduled_jobs as j where id = ${id})`);
  const before = (await read()) as object;
  await scene.db.query(`update pgfresh.scheduled_jobs set problem = 'no handler' where id = ${id}`);
  expect(await read()).toEqual({ ...before, problem: 'no handler' });
  await scene.ann.session.query(`update pgfresh.scheduled_jobs set retries = 1 where id = ${id}`);
  expect(await read()).toMatchObject({ problem: null, retries: 1 });
});

it('two who register the first jobs of a role at once both do', async () => {
  const gil = await scene.person('gil');
  await gil.session.query(plpgsql('gil.f()', done()));
  const sessions = await Promise.all([1, 2, 3, 4].map(() => openSession(gil.url)));
  await Promise.all(
    sessions.map((session, n) => scene.register({ ...good, name: `gil_${n}`, function_name: 'gil.f' }, { session })),
  );
});

it('an owner of the schema who is not a superuser runs jobs of roles that he is a member of', async () => {
  const url = await createDatabase({ empty: true });
  const admin = openDatabase(url, { poolSize: 1 });
  const owner = await createLogin(url, 'pgfresh_evaluator');
  await admin.query(
    `do $$ begin execute format('grant create on database %I to ${owner.name}', current_database()); end $$`,
  );
  const db = openDatabase(owner.url, { poolSize: 2 });
  const files = await readSqlFiles();
  await migrate(db, { files, events: new Events() });
  const { name, url: bobsUrl } = await createLogin(url, 'pgfresh_scheduler');
  const bob = await openSession(bobsUrl);
  await admin.query(`create schema bob authorization ${name}`);
  await bob.query(plpgsql('bob.f()', done('to_jsonb(current_user)')));
  const insert = () =>
    bob.query<{ id: number }>(
      `insert into pgfresh.scheduled_jobs (name, function_name, schedule) values ('f', 'bob.f', '@daily') returning id`,
    );
  const { hint } = await expectRefusal(insert(), 'PGF_JOB_INVALID');
  expect(hint).toBe(`Run as an administrator: grant ${name} to ${owner.name};`);
  await admin.query(`grant ${name} to ${owner.name}`);
  const [job] = await insert();
  expect(
    await db.query(`select pgfresh_engine.call_job_function($1::int, '{}') ->> 'details' as who`, [job!.id]),
  ).toEqual([{ who: name }]);
  // Neither may the role create here now, nor is the schema one that the next migration mistrusts.
  expect(await admin.query(`select has_schema_privilege('${name}', 'pgfresh', 'create') as may`)).toEqual([
    { may: false },
  ]);
  await migrate(db, {
    files: { ...files, functions: files.functions.map((file) => ({ ...file, text: `${file.text}\n` })) },
    events: new Events(),
  });
});
