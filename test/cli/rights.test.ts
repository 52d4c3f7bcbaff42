import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { EmbeddedServer } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { runCommand } from '../harness/command-line.ts';
import { atEnd, createDatabase, openDatabase } from '../harness/database.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { createLogin } from '../harness/login.ts';
import { databaseUrl, statement } from '../harness/server.ts';

interface Finding {
  readonly name: string;
  readonly state: string;
  readonly detail: string;
  readonly code?: string;
  readonly next?: string;
}

let cwd = '';
beforeAll(async () => {
  cwd = await mkdtemp(join(tmpdir(), 'pgfresh-rights-'));
  await writeFile(
    join(cwd, 'pgfresh.config.ts'),
    `const answer = { '~standard': { version: 1, vendor: 'test', validate: (value) => ({ value }) } };
    const fetched = { source: 'market', timestamp: 'fetched_at', ttl: '1m', schema: answer, request: (key) => ({ url: '/' + key }) };
    export default {
      sources: [{ name: 'market', baseUrl: 'https://example.com', apiKeys: [{ env: 'THE_KEY' }], authorize: () => ({}) }],
      dataTypes: [
        { ...fetched, name: 'quote', table: 'quote', key: 'symbol', rows: () => ({ symbol: 'A' }) },
        { ...fetched, name: 'posts', table: 'posts', key: 'user_id', write: 'replace', rows: () => [] },
        { ...fetched, name: 'orders', table: 'orders', key: 'user_id', rows: () => [] },
        { ...fetched, name: 'notes', table: 'notes', key: 'title', rows: () => [] },
      ],
    };`,
  );
});
afterAll(() => rm(cwd, { recursive: true }));

const cli = (url: string | undefined, ...args: string[]) =>
  runCommand(args, { cwd, env: url === undefined ? {} : { DATABASE_URL: url } });

async function check(url?: string): Promise<Finding[]> {
  const { stdout } = await cli(url, 'check', '--json');
  return (JSON.parse(stdout) as { findings: Finding[] }).findings;
}
const about = (findings: readonly Finding[], name: string) => findings.filter((finding) => finding.name === name);

describe('truth 19: before the first migration', () => {
  const lackingKeys = [
    { name: 'API keys of market', state: 'warning', detail: expect.stringContaining('THE_KEY') as string },
  ];

  it('check sees missing API keys, and who may create the roles that are missing', async () => {
    const dataDir = await temporaryFolder('rights');
    const server = new EmbeddedServer({ dataDir, events: new Events(), fsync: false });
    atEnd(async () => {
      await server.stop();
      await rm(dataDir, { recursive: true, force: true });
    });
    await server.start();
    await statement(server.url, `create role app login password 'app'`);
    await statement(server.url, 'create database mine owner app');
    const url = new URL(databaseUrl(server.url, 'mine'));
    [url.username, url.password] = ['app', 'app'];

    const findings = await check(url.href);
    expect(about(findings, 'API keys of market')).toMatchObject(lackingKeys);
    const [pending, lack, ...rest] = about(findings, 'migrations');
    expect([pending, rest]).toMatchObject([{ state: 'warning', next: 'Run "pgfresh migrate".' }, []]);
    expect(lack).toMatchObject({ state: 'fatal', code: 'PGF_DATABASE_RIGHTS' });
    expect(lack!.next).toMatch(/^Run as a superuser or a role with CREATEROLE: create role pgfresh_worker nologin; /);
    // What it says is enough.
    const all = lack!.next!.replace(/^[^:]*: /, '');
    await statement(databaseUrl(server.url, 'mine'), all);
    expect(about(await check(url.href), 'migrations')).toHaveLength(1);
    expect(await runCommand(['migrate'], { cwd: dataDir, env: { DATABASE_URL: url.href } })).toMatchObject({ code: 0 });
  });

  it('check sees missing API keys where there is no database yet', async () => {
    const findings = await check();
    expect(about(findings, 'API keys of market')).toMatchObject(lackingKeys);
    expect(about(findings, 'database')[0]!.detail).toContain('not created yet');
  });
});

describe('a login of its own', () => {
  let owner = '';
  beforeAll(async () => {
    owner = await createDatabase();
    await openDatabase(owner).query(`
      create table quote (symbol text primary key, fetched_at timestamptz);
      create table posts (id text primary key, user_id text, fetched_at timestamptz);
      create table orders (id text primary key, user_id text, fetched_at timestamptz);
      create table notes (id serial primary key, title text, fetched_at timestamptz);`);
    expect(await cli(owner, 'migrate')).toMatchObject({ code: 0 });
  });

  it('truth 19: the constraint that check proposes tells rows of one key apart where a key has many', async () => {
    const findings = await check(owner);
    const next = (type: string) => about(findings, `data type ${type}`).map((finding) => finding.next);
    expect([next('posts'), next('orders'), next('notes')]).toEqual([
      ['Run: alter table public.posts add unique ("user_id", "id");'],
      ['Run: alter table public.orders add unique ("user_id", "id");'],
      // The provider does not know numbers that PostgreSQL gives.
      ['Run: alter table public.notes add unique ("title");'],
    ]);
    for (const type of ['posts', 'orders', 'notes'])
      await openDatabase(owner, { poolSize: 1 }).query(next(type)[0]!.replace('Run: ', ''));
    expect((await check(owner)).filter(({ state }) => state === 'fatal')).toEqual([]);
  });

  it('truth 18: check says of a worker what it may not write, and of others that they need not', async () => {
    const [worker, gateway] = [await createLogin(owner, 'pgfresh_worker'), await createLogin(owner, 'pgfresh_gateway')];
    const findings = await check(worker.url);
    expect(about(findings, 'login')).toMatchObject([{ state: 'ok', detail: `${worker.name} may run worker` }]);
    expect(about(findings, 'data type posts')).toMatchObject([
      {
        state: 'fatal',
        code: 'PGF_DATABASE_RIGHTS',
        next: `Run: grant select, insert, update, delete on public.posts to ${worker.name};`,
      },
    ]);
    expect(about(findings, 'data type quote')).toMatchObject([
      { next: `Run: grant select, insert, update on public.quote to ${worker.name};` },
    ]);
    expect((await check(gateway.url)).filter(({ state }) => state === 'fatal')).toEqual([]);
  });

  it('a monitor and an operator read with every command, without a right on tables of the engine', async () => {
    await openDatabase(owner).query(`
      create function public.tidy() returns jsonb language sql as $$ select '{"success": true, "message": "done"}'::jsonb $$;
      insert into pgfresh.scheduled_jobs (name, function_name, schedule) values ('tidy', 'tidy', '@daily') on conflict do nothing`);
    for (const role of ['pgfresh_monitor', 'pgfresh_operator']) {
      const { url } = await createLogin(owner, role);
      for (const command of [
        'top --once',
        'explain quote A',
        'source list',
        'source show market',
        'type list',
        'type show quote',
        'refused list',
        'jobs list',
        'jobs show tidy',
        'jobs next tidy',
        'jobs history tidy',
        'migrate status',
        'migrate --dry-run',
      ]) {
        const { code, stderr } = await cli(url, ...command.split(' '));
        expect([role, command, code, stderr]).toEqual([role, command, 0, expect.not.stringContaining('permission')]);
      }
      const rights = (await check(url)).filter(({ code }) => code === 'PGF_DATABASE_RIGHTS');
      expect([role, rights.filter(({ name }) => !name.startsWith('data type'))]).toEqual([role, []]);
    }
  });

  it('an operator decides about jobs, sources and spending', async () => {
    const { url } = await createLogin(owner, 'pgfresh_operator');
    for (const command of [
      'jobs pause tidy --reason why',
      'jobs resume tidy',
      'jobs run tidy --no-wait',
      'jobs cancel tidy',
      'source pause market',
      'source resume market',
      'stop-spending --reason why',
      'resume-spending',
    ]) {
      const { code, stderr } = await cli(url, ...command.split(' '));
      expect([command, code, stderr]).toEqual([command, 0, expect.not.stringContaining('permission')]);
    }
  });

  it('truth 19: check of a login that may run nothing says how it gets a role', async () => {
    const { name, url } = await createLogin(owner);
    await openDatabase(owner, { poolSize: 1 }).query(
      `grant usage on schema pgfresh to ${name}; grant select on pgfresh.migrations to ${name}`,
    );
    expect(about(await check(url), 'login')).toEqual([
      {
        name: 'login',
        state: 'warning',
        detail: `${name} may run none of the roles`,
        next: `Run "pgfresh migrate --grants worker=${name}" with the login that owns the schema; other roles: docs/production/deploy.md.`,
      },
    ]);
  });

  it('truth 18: gets what it needs by --grants, printed or applied', async () => {
    const { name, url } = await createLogin(owner);
    const { name: other } = await createLogin(owner);
    const printed = await cli(owner, 'migrate', '--grants', `worker=${name},gateway=${other},read=quote`);
    expect([printed.code, printed.stderr]).toEqual([0, '']);
    expect(printed.stdout.split('\n')).toEqual(
      expect.arrayContaining([
        `grant pgfresh_worker to "${name}";`,
        `grant usage on schema public to "${name}";`,
        `grant select, insert, update on public.quote to "${name}";`,
        `grant select, insert, update, delete on public.posts to "${name}";`,
        `grant usage on sequence public.notes_id_seq to "${name}";`,
        `grant pgfresh_gateway to "${other}";`,
        `grant select on public.quote to "${other}";`,
      ]),
    );
    expect((await cli(url, 'check')).code).toBe(1);
    const applied = await cli(owner, 'migrate', '--grants', `worker=${name}`, '--apply', '--json');
    expect(JSON.parse(applied.stdout)).toMatchObject({ applied: true });
    expect((await check(url)).filter(({ state }) => state === 'fatal')).toEqual([]);
  });

  it('truth 26: says how to create a login that is not there', async () => {
    const args = ['migrate', '--grants', 'worker=no_such_login,gateway=No more', '--apply'];
    expect(await cli(owner, ...args)).toMatchObject({
      code: 4,
      stderr:
        'PGF_LOGIN_UNKNOWN PostgreSQL has no role "No more", "no_such_login", so nothing can be granted to it.\n' +
        'Next: Run "create role "No more" login; create role "no_such_login" login;", with a password if your server requires one, then repeat the command.\n',
    });
  });

  it.each([
    [['--grants', 'wroker=app'], /there is no role "wroker"; did you mean "worker"\?/],
    [['--grants', 'worker'], /expected role=login, table=name or read=name, got "worker"/],
    [['--grants', 'table=quote,worker=app'], /"table=quote" must follow the login/],
    [['--grants', 'worker=app,table=qoute'], /There is no table qoute/],
    [['--apply'], /--apply goes with --grants/],
  ])('%j is refused', async (args, message) => {
    const { code, stderr } = await cli(owner, 'migrate', ...args);
    expect([code, stderr]).toEqual([2, expect.stringMatching(message)]);
  });
});
