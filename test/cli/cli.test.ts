import { exec } from 'node:child_process';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { runCommand } from '../harness/command-line.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { CliProcess, runCli } from '../harness/process.ts';
import { Proxy } from '../harness/proxy.ts';
import { databaseUrl } from '../harness/server.ts';

let cwd = '';
let url = '';
beforeAll(async () => {
  cwd = await mkdtemp(join(tmpdir(), 'pgfresh-cli-'));
  url = await createDatabase({ empty: true });
});
afterAll(() => rm(cwd, { recursive: true }));

// Where its start, its signals or its end are what is tested, it is a process of its own.
const run = (args: string[], env: Record<string, string> = {}) => runCommand(args, { cwd, env });
const onDatabase = (args: string[]) => run(args, { DATABASE_URL: url });

describe('help', () => {
  it.each([[[]], [['--help']], [['help']]])('%j shows the commands, every setting and the exit codes', async (args) => {
    const { code, stdout, stderr } = await run(args);
    expect([code, stderr]).toEqual([0, '']);
    for (const word of [
      'dev',
      'run',
      'migrate',
      'check',
      'type',
      'config',
      'DATABASE_URL',
      '--data-dir',
      'Exit codes:',
    ])
      expect(stdout).toContain(word);
  });

  it.each(['dev', 'run', 'migrate', 'check', 'type', 'config'])('of %s says what it is for', async (command) => {
    const { code, stdout } = await run([command, '--help']);
    expect(code).toBe(0);
    expect(stdout).toMatch(new RegExp(`^Usage: pgfresh ${command}`));
  });

  it('has a version', async () => {
    expect((await run(['--version'])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
  });
});

describe('truth 22: the help', () => {
  it.each([['jobs'], ['source'], ['type'], ['refused'], ['cron'], ['migrate']])(
    'of %s shows its commands first and the options of every command last',
    async (command) => {
      const { stdout } = await run([command, '--help']);
      const places = ['Commands:', 'Options:', 'Global Options:'].map((title) => stdout.indexOf(`\n${title}\n`));
      expect(places).toEqual(places.toSorted((a, b) => a - b));
      expect(places[0]).toBeGreaterThan(0);
    },
  );
});

describe('truth 22: a mistyped variable', () => {
  const env = { PGFRESH_PROT: '4500' };
  const warning = 'The environment variable PGFRESH_PROT is no setting of pgfresh; did you mean PGFRESH_PORT?';

  it('is a finding of check, and a hint of other commands', async () => {
    expect((await run(['check'], env)).stdout).toContain(`! environment: ${warning}\n  Next: Correct its name`);
    expect((await run(['config'], env)).stderr).toContain(warning);
    expect((await run(['migrate', 'status'], { ...env, DATABASE_URL: url })).stderr).toContain(warning);
  });
});

it('truth 26: check says that the secret of tokens is not set, before there is a database and after', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'pgfresh-secret-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  await writeFile(
    join(folder, 'pgfresh.config.ts'),
    `export default { gateway: { jwt: { secret: { env: 'JWT_SECRET' } } } }`,
  );
  for (const env of [{}, { DATABASE_URL: await createDatabase() }]) {
    const { code, stdout } = await runCommand(['check'], { cwd: folder, env });
    expect(stdout).toMatch(
      /^✗ gateway: The secret of gateway\.jwt .* in the variable JWT_SECRET, got 0\n {2}Next: Use/m,
    );
    expect(stdout).toMatch(/^✓ database: /m);
    expect(code).toBe(1);
  }
});

describe('truth 26: before the first start', () => {
  it.each([
    [['explain', 'quote', 'AAPL']],
    [['refresh', 'quote', 'AAPL']],
    [['try', 'quote', 'AAPL']],
    [['refused', 'list']],
    [['source', 'pause', 'market']],
    [['stop-spending']],
    [['jobs', 'run', 'nightly']],
  ])('%j says what to do, and creates nothing', async (args) => {
    const folder = await mkdtemp(join(tmpdir(), 'pgfresh-nothing-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const { code, stderr } = await runCommand(args, { cwd: folder });
    expect([code, stderr]).toEqual([
      4,
      `PGF_NOTHING_YET There is no database yet: the folder .pgfresh has none, and DATABASE_URL is not set.
Next: Run "pgfresh dev", which creates a database, or set DATABASE_URL.\n`,
    ]);
    expect(await readdir(folder)).toEqual([]);
  });

  it('uninstall has nothing to do', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'pgfresh-nothing-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    expect(await runCommand(['migrate', 'uninstall', '--yes'], { cwd: folder })).toMatchObject({ code: 0 });
    expect(await readdir(folder)).toEqual([]);
  });

  it('explain on a database without pgfresh says that it is not migrated', async () => {
    const { code, stderr } = await run(['explain', 'quote', 'AAPL'], {
      DATABASE_URL: await createDatabase({ empty: true }),
    });
    expect([code, stderr]).toEqual([4, expect.stringMatching(/^PGF_MIGRATION_PENDING /)]);
  });
});

describe('a wrong command line', () => {
  it.each([
    [['migrat'], 'PGF_USAGE', /Did you mean migrate\?/],
    [['migrate', 'statu'], 'PGF_USAGE', /Did you mean status\?/],
    [['banana'], 'PGF_USAGE', /unknown command 'banana'\n/],
    [['--prot', '1'], 'PGF_USAGE', /Did you mean --port\?/],
    [['config', '--prot', '1'], 'PGF_USAGE', /Did you mean --port\?/],
    [['config', 'extra'], 'PGF_USAGE', /too many arguments/],
    [['migrate', 'status', 'extra'], 'PGF_USAGE', /too many arguments/],
    [['run', '--roles', 'consol'], 'PGF_ROLE_UNKNOWN', /did you mean "console"/],
    [['run', '--roles', ''], 'PGF_ROLE_UNKNOWN', /Choose from: planner, worker, scheduler, gateway, console/],
  ])('%j is refused with the near miss', async (args, code, text) => {
    const result = await run(args);
    expect(result.code).toBe(2);
    expect(result.stderr).toContain(code);
    expect(result.stderr).toMatch(text);
    expect(result.stderr).not.toMatch(/^\s+at /m);
  });

  it.each([
    [['source', 'resume'], 'pgfresh source resume --help'],
    [['--config', 'x.ts', 'top', '--onec'], 'pgfresh top --help'],
    [['source', 'lst'], 'pgfresh source --help'],
    [['banana'], 'pgfresh --help'],
  ])('truth 26: %j points to the help of its command', async (args, help) => {
    expect((await run(args)).stderr).toContain(`\nNext: Run "${help}" to see its usage.\n`);
  });

  it('is JSON when JSON was asked for', async () => {
    const result = await run(['migrat', '--json']);
    expect(JSON.parse(result.stdout)).toMatchObject({ error: { code: 'PGF_USAGE' } });
  });

  it('shows the trace only with --debug', async () => {
    expect((await run(['run', '--roles', 'x', '--debug'])).stderr).toMatch(/^\s+at /m);
  });
});

it.each([
  ['20.11.1', 2],
  ['22.17.1', 2],
  ['22.18.0', 0],
])('Node.js %s: exit code %i', async (version, code) => {
  const fake = `Object.defineProperty(process.versions,'node',{value:'${version}'})`;
  const result = await runCli(['--version'], { cwd, env: { NODE_OPTIONS: `--import data:text/javascript,${fake}` } });
  expect(result.code).toBe(code);
  const refused =
    /^PGF_NODE_TOO_OLD pgfresh needs Node\.js 22\.18 or newer, .*: install a newer one; in a clone of pgfresh, "npm start" brings its own\.\n$/;
  expect(result.stderr).toMatch(code === 0 ? /^$/ : refused);
});

it.each([
  [
    "import { defineConfig } from 'pgfresh'; export default defineConfig({});",
    'Run "npm pkg set type=module" in its folder',
  ],
  ['export default {};', 'Run "npm pkg set type=module" in its folder'],
  ["throw new Error('no key');", 'Correct the file'],
])('in a folder that "npm init -y" made, %s has its own next step', async (text, step) => {
  const folder = await mkdtemp(join(cwd, 'commonjs-'));
  await writeFile(join(folder, 'package.json'), '{ "type": "commonjs" }');
  await writeFile(join(folder, 'pgfresh.config.ts'), text);
  const { code, stderr } = await runCli(['config'], { cwd: folder });
  expect(code).toBe(3);
  expect(stderr).toMatch(/^PGF_CONFIG_THROWS .*pgfresh\.config\.ts could not be loaded: /m);
  expect(stderr).toContain(`Next: ${step}; "pgfresh config --debug" shows where it failed.\n`);
});

describe('config', () => {
  it('shows values, origins, and no secrets', async () => {
    const env = { DATABASE_URL: 'postgres://u:hunter2@db/x', PGFRESH_TOKEN: 'correct-horse-battery' };
    const [json, text] = [await run(['config', '--json', '--port', '4444'], env), await run(['config'], env)];
    const { settings } = JSON.parse(json.stdout) as { settings: { name: string; value: unknown; from: string }[] };
    expect(settings).toContainEqual(expect.objectContaining({ name: 'port', value: 4444, from: 'flag' }));
    expect(settings).toContainEqual(
      expect.objectContaining({ name: 'databaseUrl', value: '(hidden)', from: 'environment' }),
    );
    expect(settings).toContainEqual(expect.objectContaining({ name: 'host', value: '127.0.0.1', from: 'default' }));
    expect(json.stdout + text.stdout).not.toMatch(/hunter2|correct-horse/);
    expect(text.stdout).toMatch(/^dataDir\s+\.pgfresh\s+default\s+PGFRESH_DATA_DIR\s+--data-dir$/m);
  });
});

it('the configuration of docs/start/quick-start.md works in a folder made as it says', async () => {
  const page = await readFile('docs/start/quick-start.md', 'utf8');
  const [, setUp, shown] =
    /```sh\n([^\n]*)\nnpm install pgfresh\n```\n\n```ts\n\/\/ pgfresh\.config\.ts\n(.*?)```/s.exec(page)!;
  const folder = join(cwd, 'quick-start');
  await mkdir(folder);
  await promisify(exec)(setUp!, { cwd: folder });
  await writeFile(join(folder, 'pgfresh.config.ts'), shown!);
  const { stdout } = await runCli(['config', '--json'], { cwd: folder });
  const { file, settings } = JSON.parse(stdout) as { file: string; settings: { name: string }[] };
  expect(file).toBe(join(folder, 'pgfresh.config.ts'));
  expect(settings).toContainEqual(expect.objectContaining({ name: 'port', value: 4500, from: 'file' }));
  expect(settings).toContainEqual(expect.objectContaining({ name: 'statementTimeout', value: 10_000, from: 'file' }));
  // The demo does not move in with it.
  const demo = await runCli(['demo'], { cwd: folder });
  expect(demo).toMatchObject({ code: 2, stderr: expect.stringContaining('PGF_DEMO_FOLDER') as string });
  expect(await readdir(folder)).toEqual(['package.json', 'pgfresh.config.ts']);
});

describe('migrate', () => {
  it('shows, scripts, applies, reports and uninstalls', async () => {
    expect((await onDatabase(['migrate', '--dry-run'])).stdout).toContain('Would apply migration/001_schema');
    expect((await onDatabase(['migrate', '--sql'])).stdout).toContain('create schema pgfresh');
    expect(JSON.parse((await onDatabase(['migrate', 'status', '--json'])).stdout)).toMatchObject({ applied: [] });
    const applied = JSON.parse((await onDatabase(['migrate', '--json'])).stdout) as { applied: string[] };
    expect(applied.applied).toContain('functions/api/rules');
    expect((await onDatabase(['migrate'])).stdout).toBe('Nothing to do: the database is up to date.\n');
    expect((await onDatabase(['migrate', 'status'])).stdout).toMatch(/^migration\/001_schema\s+applied \d{4}-/m);
    const asked = await onDatabase(['migrate', 'uninstall']);
    expect([asked.code, asked.stderr]).toEqual([2, expect.stringContaining('PGF_UNINSTALL_UNCONFIRMED')]);
    const askedByMachine = await onDatabase(['migrate', 'uninstall', '--json']);
    expect([askedByMachine.code, JSON.parse(askedByMachine.stdout)]).toMatchObject([2, { dropped: false }]);
    expect((await onDatabase(['migrate', 'uninstall', '--yes'])).stdout).toMatch(
      /^Dropped: The schemas pgfresh and pgfresh_engine of/,
    );
    expect((await onDatabase(['migrate', 'uninstall'])).stdout).toContain('not installed');
  });

  it('says in one line what it did, and with --debug each file', async () => {
    const summary = /^Migrated the schema: \d+ migrations, \d+ function files, \d+\.\d s$/;
    const linesOf = async (...words: string[]): Promise<string[]> => {
      const env = { DATABASE_URL: await createDatabase({ empty: true }) };
      return (await runCommand(['migrate', ...words], { cwd, env })).stdout.trimEnd().split('\n');
    };
    expect(await linesOf()).toEqual([expect.stringMatching(summary)]);
    const lines = await linesOf('--debug');
    expect(lines.at(-1)).toMatch(summary);
    expect(lines).toContain('Applied functions/api/rules');
  });

  it('is done once by five processes that start at once', async () => {
    const env = { DATABASE_URL: url };
    const all = await Promise.all(Array.from({ length: 5 }, () => runCli(['migrate', '--json'], { cwd, env })));
    expect(all.map(({ code }) => code)).toEqual([0, 0, 0, 0, 0]);
    const applied = all.map(({ stdout }) => (JSON.parse(stdout) as { applied: string[] }).applied.length);
    expect(applied.filter((count) => count > 0)).toHaveLength(1);
  });

  it('leaves nothing behind when it is killed before its commit', async () => {
    const fresh = await createDatabase({ empty: true });
    const killed = await runCli(['migrate'], {
      cwd,
      env: { DATABASE_URL: fresh, PGFRESH_FAILPOINTS: 'migrate.before-commit=kill' },
    });
    expect(killed.code).toBe('SIGKILL');
    const database = openDatabase(fresh);
    expect(await database.query(`select to_regnamespace('pgfresh') as schema`)).toEqual([{ schema: null }]);
    expect((await runCommand(['migrate'], { cwd, env: { DATABASE_URL: fresh } })).code).toBe(0);
  });

  it('refuses a database that a newer pgfresh has migrated, with its own exit code', async () => {
    const fresh = await createDatabase();
    const database = openDatabase(fresh);
    await database.query(`insert into pgfresh.migrations (kind, name, hash) values ('migration', '999_later', 'x')`);
    const result = await runCommand(['migrate'], { cwd, env: { DATABASE_URL: fresh } });
    expect([result.code, result.stderr]).toEqual([5, expect.stringContaining('PGF_MIGRATION_NEWER')]);
  });

  it('refuses a migration whose text has changed since', async () => {
    const fresh = await createDatabase();
    await openDatabase(fresh).query(`update pgfresh.migrations set hash = 'x' where kind = 'migration'`);
    const result = await runCommand(['migrate'], { cwd, env: { DATABASE_URL: fresh } });
    expect([result.code, result.stderr]).toEqual([4, expect.stringContaining('PGF_MIGRATION_CHANGED')]);
  });
});

describe('run', () => {
  it('wants a migrated database, serves it, and stops cleanly', async () => {
    const fresh = await createDatabase({ empty: true });
    const env = { DATABASE_URL: fresh, PGFRESH_PORT: '0' };
    const refused = await runCommand(['run'], { cwd, env });
    expect([refused.code, refused.stderr]).toEqual([4, expect.stringContaining('PGF_MIGRATION_PENDING')]);

    const child = new CliProcess(['run', '--migrate', '--json'], { cwd, env });
    await child.printed(/"ready": true/);
    const { url: address, pid } = JSON.parse(child.stdout) as { url: string; pid: number };
    expect(pid).toBe(child.pid);
    expect((await fetch(`${address}/readyz`)).status).toBe(200);
    expect(await (await fetch(address)).text()).toContain('<title>pgfresh</title>');
    expect(await (await fetch(`${address}/api/status`)).json()).toMatchObject({
      roles: ['planner', 'worker', 'scheduler', 'gateway', 'console'],
      health: { ready: true },
    });
    await openDatabase(fresh).query('delete from pgfresh.migrations');
    expect((await fetch(`${address}/readyz`)).status).toBe(503);
    child.signal('SIGTERM');
    expect(await child.exit).toBe(0);
    expect(child.stderr).toContain('"type":"process.stopped"');
  });
});

/** Root may write where the mode forbids it, but not below a file. */
async function unwritableFolder(): Promise<string> {
  const folder = await mkdtemp(join(cwd, 'unwritable-'));
  if (process.getuid?.() !== 0) {
    await chmod(folder, 0o500);
    return folder;
  }
  await writeFile(join(folder, 'file'), '');
  return join(folder, 'file', 'sub');
}

async function silenced(): Promise<CliProcess> {
  const { proxy, url: far } = await Proxy.before(await createDatabase());
  onTestFinished(() => proxy.close());
  const child = new CliProcess(['run', '--json'], { cwd, env: { DATABASE_URL: far, PGFRESH_PORT: '0' } });
  await child.printed(/"ready": true/);
  proxy.judge = () => 'hold';
  const { url: address } = JSON.parse(child.stdout) as { url: string };
  expect((await fetch(`${address}/readyz`)).status).toBe(503);
  return child;
}

describe('a database that does not answer any more', () => {
  it('does not keep the process from ending', async () => {
    const child = await silenced();
    const asked = performance.now();
    child.signal('SIGTERM');
    expect(await child.exit).toBe(0);
    // Scheduler, worker, planner and pool each wait a little for it.
    expect(performance.now() - asked).toBeLessThan(20_000);
  }, 60_000);

  it('is not waited for when the process is asked twice', async () => {
    const child = await silenced();
    child.signal('SIGINT');
    await child.printed(/"type":"process\.stopping"/);
    await sleep(1_100);
    child.signal('SIGINT');
    expect(await child.exit).toBe(1);
  });
});

function withPassword(password: string): string {
  const other = new URL(url);
  other.password = password;
  return other.href;
}

describe('what goes wrong ends with one coded sentence and the next step', () => {
  let config = '';
  let free: () => void;
  let port = 0;
  beforeAll(async () => {
    config = join(cwd, 'bad');
    await mkdir(config);
    await writeFile(join(config, 'typo.ts'), 'export default { prot: 1 }');
    await writeFile(join(config, 'throws.ts'), `throw new Error('no key')`);
    // To whoever asks for TLS it answers as a PostgreSQL that has none.
    const other = createServer((socket) => socket.resume().end('N')).listen(0, '127.0.0.1');
    await once(other, 'listening');
    port = (other.address() as { port: number }).port;
    free = () => other.close();
  });
  afterAll(() => free());

  type Attempt = [string[], Record<string, string>];
  it.each<[string, string, number, () => Attempt | Promise<Attempt>]>([
    [
      'an unreachable database',
      'PGF_DATABASE_UNREACHABLE',
      4,
      () => [['dev'], { DATABASE_URL: 'postgres://127.0.0.1:1/x' }],
    ],
    [
      'a host that does not exist',
      'PGF_DATABASE_UNREACHABLE',
      4,
      () => [['dev'], { DATABASE_URL: 'postgres://nowhere.invalid' }],
    ],
    ['an address that is none', 'PGF_DATABASE_URL_INVALID', 3, () => [['dev'], { DATABASE_URL: 'mysql://x' }]],
    ['a wrong password', 'PGF_DATABASE_LOGIN', 4, () => [['dev'], { DATABASE_URL: withPassword('wrong') }]],
    [
      'a database that does not exist',
      'PGF_DATABASE_LOGIN',
      4,
      () => [['dev'], { DATABASE_URL: databaseUrl(url, 'pgfresh_not_there') }],
    ],
    [
      'a server without TLS',
      'PGF_DATABASE_TLS',
      4,
      () => [['dev'], { DATABASE_URL: `postgres://127.0.0.1:${port}/x?sslmode=require` }],
    ],
    ['a taken port', 'PGF_PORT_UNAVAILABLE', 3, () => [['dev', '--port', String(port)], { DATABASE_URL: url }]],
    ['a configuration with a typo', 'PGF_CONFIG_INVALID', 3, () => [['dev', '--config', join(config, 'typo.ts')], {}]],
    ['a configuration that throws', 'PGF_CONFIG_THROWS', 3, () => [['dev', '--config', join(config, 'throws.ts')], {}]],
    ['a configuration that is not there', 'PGF_CONFIG_MISSING', 3, () => [['dev', '--config', 'nope.ts'], {}]],
    [
      'a folder that cannot be',
      'PGF_DATA_DIR_UNWRITABLE',
      3,
      async () => [['dev', '--data-dir', await unwritableFolder()], {}],
    ],
    ['a public address', 'PGF_PUBLIC_WITHOUT_TOKEN', 3, () => [['dev', '--host', '0.0.0.0'], { DATABASE_URL: url }]],
  ])('%s: %s', async (_name, code, exit, command) => {
    const [args, env] = await command();
    const result = await run([...args, '--log-level', 'silent'], env);
    const [first, second, ...rest] = result.stderr.trimEnd().split('\n');
    expect(first).toMatch(new RegExp(`^${code} \\S.*`));
    expect(second).toMatch(/^Next: .+\.$/);
    expect(rest).toEqual([]);
    expect(result.code).toBe(exit);
    expect(result.stdout).toBe('');
  });

  it('a login without the right to create, which may still look', async () => {
    const fresh = await createDatabase({ empty: true });
    const database = openDatabase(fresh);
    const user = `pgfresh_poor_${process.pid}`;
    await database.query(`create role ${user} login password 'poor'`);
    const poor = new URL(fresh);
    [poor.username, poor.password] = [user, 'poor'];
    const asPoor = (...args: string[]) => run(args, { DATABASE_URL: poor.href });

    const refused = await asPoor('migrate');
    expect(refused.stderr).toMatch(/PGF_DATABASE_RIGHTS.*\n.*: grant create on database "\w+" to "\w+";$/m);
    expect(refused.code).toBe(4);
    const script = await asPoor('migrate', '--sql');
    expect([script.code, script.stdout]).toEqual([0, expect.stringContaining('create schema pgfresh;')]);

    await database.query(script.stdout.replace('\\set ON_ERROR_STOP on', ''));
    const blind = await asPoor('migrate', 'status');
    expect(blind.stderr).toMatch(
      /PGF_DATABASE_RIGHTS.*\n.*grant usage on schema pgfresh, .* grant select on pgfresh\.m/,
    );
    await database.query(`grant usage on schema pgfresh to ${user}`);
    await database.query(`grant select on pgfresh.migrations to ${user}`);
    expect((await asPoor('migrate', 'status')).stdout).toMatch(/001_schema\s+applied/);
    await database.query(`delete from pgfresh.migrations where kind = 'functions'`);
    expect((await asPoor('migrate')).stderr).toContain(`grant usage, create on schema pgfresh to "${user}";`);

    await database.query(`drop owned by ${user}`);
    await database.query(`drop role ${user}`);
  });
});

describe('check', () => {
  it('lists every check that was made, as JSON', async () => {
    const { code, stdout } = await onDatabase(['check', '--json']);
    const { ok, findings } = JSON.parse(stdout) as { ok: boolean; findings: { name: string; state: string }[] };
    expect([code, ok]).toEqual([0, true]);
    // A scheduler that ran here before has left jobs of its own.
    expect(findings.map(({ name }) => name).filter((name) => name !== 'scheduler')).toEqual([
      'node',
      'configuration',
      'data folder',
      'http',
      'database',
      'pooler',
      'migrations',
      'login',
      'registry',
      'sources',
      'worker',
      'jobs',
    ]);
  });

  it('exits 1 on what is fatal, with the next step', async () => {
    const { code, stdout } = await run(['check'], { DATABASE_URL: 'postgres://127.0.0.1:1/x' });
    expect(code).toBe(1);
    expect(stdout).toMatch(/✗ database: No PostgreSQL answers at 127\.0\.0\.1:1\/x.*\n {2}Next: /);
    expect(stdout).toMatch(/^1 of \d+ checks is fatal\.$/m);
  });

  it('says what a bad configuration is about', async () => {
    await writeFile(join(cwd, 'typo.ts'), 'export default { prot: 1 }');
    const { code, stdout } = await run(['check', '--json', '--config', 'typo.ts']);
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({
      ok: false,
      findings: [{ name: 'node' }, { name: 'configuration', state: 'fatal', code: 'PGF_CONFIG_INVALID' }],
    });
  });

  it('sees a data folder that cannot be written, where it is needed', async () => {
    const folder = await unwritableFolder();
    const finding = async (env: Record<string, string>) => {
      const { stdout } = await run(['check', '--json', '--data-dir', folder], env);
      const { findings } = JSON.parse(stdout) as { findings: { name: string }[] };
      return findings.find(({ name }) => name === 'data folder');
    };
    const token = 'a-secret-of-enough-characters';
    const fatal = { state: 'fatal', code: 'PGF_DATA_DIR_UNWRITABLE' };
    expect(await finding({})).toMatchObject(fatal);
    expect(await finding({ PGFRESH_TOKEN: token })).toMatchObject(fatal);
    expect(await finding({ DATABASE_URL: url })).toMatchObject(fatal);
    expect(await finding({ DATABASE_URL: url, PGFRESH_TOKEN: token })).toMatchObject({ state: 'ok' });
  });

  it('shows why it cannot look into the data folder', async () => {
    const folder = join(cwd, 'unreadable');
    await mkdir(join(folder, 'postgres', 'PG_VERSION'), { recursive: true });
    const { stdout } = await run(['check', '--data-dir', folder]);
    expect(stdout).toMatch(/✗ embedded PostgreSQL: .*EISDIR.*\n {2}Next: /);
  });

  it('sees a public address without a token', async () => {
    const { stdout } = await run(['check', '--json', '--host', '0.0.0.0'], { DATABASE_URL: url });
    expect(JSON.parse(stdout)).toMatchObject({
      ok: false,
      findings: expect.arrayContaining([
        expect.objectContaining({ name: 'http', code: 'PGF_PUBLIC_WITHOUT_TOKEN' }),
      ]) as unknown,
    });
  });
});

describe('in an empty folder', () => {
  const pending = expect.arrayContaining(['migration/001_schema', 'functions/api/rules']) as unknown;
  it.each<[string[], unknown]>([
    [['check'], { ok: true }],
    [['migrate', '--dry-run'], { pending }],
    [['migrate', 'status'], { applied: [], pending }],
    [['migrate', '--sql'], { script: expect.stringContaining('create schema pgfresh') as string }],
  ])('%j creates nothing and says so', async (args, expected) => {
    const folder = join(cwd, args.join('-'));
    await mkdir(folder);
    const { code, stdout, stderr } = await runCommand([...args, '--json'], { cwd: folder });
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject(expected as object);
    expect(stdout + stderr).toMatch(/not created yet; \\?"pgfresh dev\\?" creates it/);
    expect(await readdir(folder)).toEqual([]);
  });
});
