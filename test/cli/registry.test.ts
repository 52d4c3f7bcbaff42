import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Database } from '../../src/database/index.ts';
import { runCommand } from '../harness/command-line.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { CliProcess } from '../harness/process.ts';

let folder = '';
let cwd = '';
let url = '';
let database: Database;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'pgfresh-types-'));
  cwd = folder;
  url = await createDatabase();
  database = openDatabase(url);
  await database.query(`create table public.quote (symbol text primary key, fetched_at timestamptz);
    create table public.profile (symbol text primary key, fetched_at timestamptz);
    create table public.earnings (symbol text primary key, fetched_at timestamptz)`);
});
afterAll(() => rm(folder, { recursive: true }));

const pgfresh = (...args: string[]) => runCommand(args, { cwd, env: { DATABASE_URL: url } });
const json = async (...args: string[]) => JSON.parse((await pgfresh(...args, '--json')).stdout) as object;

const quote = `{ name: 'quote', source: market, table: 'quote', key: 'symbol', timestamp: 'fetched_at', ttl: '15m', dependsOn: ['profile'] }`;
const profile = `{ name: 'profile', source: market, table: 'profile', key: 'symbol', timestamp: 'fetched_at', ttl: '7d' }`;
/** From here on commands find this configuration. */
async function configure(...types: string[]): Promise<void> {
  cwd = await mkdtemp(join(folder, 'with-'));
  await writeFile(
    join(cwd, 'pgfresh.config.ts'),
    `import { defineConfig, defineDataType, defineSource } from 'pgfresh';
    const market = defineSource({ name: 'market', rateLimitPerMinute: 300 });
    export default defineConfig({ dataTypes: [${types.map((type) => `defineDataType(${type})`).join(', ')}] });`,
  );
}

describe('before anything is registered', () => {
  it('type list says what to do, and type show that there are none', async () => {
    const list = await pgfresh('type', 'list');
    expect([list.code, list.stdout]).toEqual([0, expect.stringMatching(/^No data types yet\.\nNext: Add one/)]);
    expect(await json('type', 'list')).toEqual({ types: [] });
    const show = await pgfresh('type', 'show', 'quote');
    expect([show.code, show.stderr]).toEqual([
      1,
      expect.stringMatching(/PGF_TYPE_UNKNOWN .*there are none yet\nNext: /),
    ]);
  });

  it('truth 22: type list names what the configuration has, and a misspelt option points to its page', async () => {
    await configure(profile);
    expect((await pgfresh('type', 'list')).stdout).toBe(
      'No data types in the database yet; the configuration has profile.\nNext: "pgfresh dev" or "pgfresh migrate" registers them.\n',
    );
    await configure(profile.replace('ttl:', 'tttl:'));
    expect((await pgfresh('type', 'list')).stderr).toMatch(
      /did you mean "ttl"\?\nNext: Correct the option; docs\/reference\/configuration\.md#data-types lists/,
    );
    await configure(profile);
  });

  it('an empty database is not one without data types', async () => {
    const result = await runCommand(['type', 'list'], {
      cwd,
      env: { DATABASE_URL: await createDatabase({ empty: true }) },
    });
    expect([result.code, result.stderr]).toEqual([4, expect.stringContaining('PGF_MIGRATION_PENDING')]);
  });

  it('a dry run on an empty database shows what would come', async () => {
    await configure(profile);
    const env = { DATABASE_URL: await createDatabase({ empty: true }) };
    const { stdout } = await runCommand(['migrate', '--dry-run'], { cwd, env });
    expect(stdout).toMatch(/Would apply migration\/001_schema\n[^]*\n\+ source market\n\+ data type profile\n$/);
  });

  it.each([
    [['type', 'lst'], /Did you mean list\?/],
    [['type', 'show'], /missing required argument 'name'/],
    [['type', 'show', 'a', 'b'], /too many arguments/],
  ])('%j is refused', async (args, text) => {
    const result = await pgfresh(...args);
    expect([result.code, result.stderr]).toEqual([2, expect.stringMatching(text)]);
  });
});

describe('migrate', () => {
  const added = { sources: { added: ['market'] }, types: { added: ['quote', 'profile'], changed: [], removed: [] } };

  it('shows the difference, then makes it, then has nothing to do', async () => {
    await configure(quote, profile);
    expect(await json('migrate', '--dry-run')).toMatchObject({ pending: [], registry: added });
    expect(await json('type', 'list')).toEqual({ types: [] });
    expect(await json('migrate')).toMatchObject({ applied: [], registry: added });
    expect((await pgfresh('migrate')).stdout).toBe('Nothing to do: the database is up to date.\n');
    await configure(profile.replace('7d', '14d'));
    const lines = '~ data type profile\n    ttl: 7d → 14d\n- data type quote\n';
    expect((await pgfresh('migrate', '--dry-run')).stdout).toBe(lines);
    expect((await pgfresh('migrate')).stdout).toBe(lines);
  });

  it('truth 24: tells what an operator has set, by whom, when and why, and leaves it', async () => {
    await configure(quote, profile);
    await pgfresh('migrate');
    await pgfresh('source', 'set', 'market', 'rate_limit_per_minute', '120', '--reason', 'incident 7');
    for (const args of [['migrate', '--dry-run'], ['migrate']])
      expect((await pgfresh(...args)).stdout).toMatch(
        /^! source market: rate_limit_per_minute is 120, set by \S+ at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ: incident 7; the configuration says 300\n {2}Next: Run "pgfresh source clear market" to follow the configuration\.$/m,
      );
    await pgfresh('source', 'clear', 'market');
    expect((await pgfresh('migrate')).stdout).toBe('Nothing to do: the database is up to date.\n');
  });

  it('tells what has drifted, and leaves it', async () => {
    await configure(quote, profile);
    await pgfresh('migrate');
    await database.query('alter table public.quote rename to quotes');
    const { code, stdout } = await pgfresh('migrate');
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(
        /^Nothing to do.*\n! data type quote: table_name: there is no table public\.quote\n {2}Next: Create it/,
      ),
    ]);
    const check = await pgfresh('check');
    expect([check.code, check.stdout]).toEqual([
      1,
      expect.stringContaining('✗ data type quote: table_name: there is no'),
    ]);
    expect((await pgfresh('type', 'list')).stdout).toMatch(/^quote .* table_name: there is no table public\.quote$/m);
    await database.query('alter table public.quotes rename to quote');
    expect(await pgfresh('check')).toMatchObject({ code: 0 });
  });

  it('ends with what is wrong in one sentence, and the next step', async () => {
    await configure(profile.replace(`'profile', key`, `'profiles', key`));
    const { code, stderr } = await pgfresh('migrate');
    expect(code).toBe(3);
    expect(stderr).toMatch(
      /^PGF_TYPE_REFUSED .*"profile".*no table public\.profiles\. Create it.*\nNext: Correct .*\n$/,
    );
  });
});

describe('a type that is added by one INSERT', () => {
  beforeAll(async () => {
    await configure(quote, profile);
    await pgfresh('migrate');
  });

  it('is there for a process that runs, and no sync touches it', async () => {
    const child = new CliProcess(['run', '--json'], { cwd, env: { DATABASE_URL: url, PGFRESH_PORT: '0' } });
    await child.printed(/"ready": true/);
    await database.query(`insert into pgfresh.data_type_registry (data_type, source, table_name, key_columns, timestamp_column, ttl)
      values ('earnings', 'market', 'earnings', '{symbol}', 'fetched_at', '1 day')`);
    expect((await pgfresh('type', 'list')).stdout).toMatch(
      /^earnings\s+market\s+earnings\s+1d\s+on-demand\s+sql\s+ok$/m,
    );
    child.signal('SIGTERM');
    expect(await child.exit).toBe(0);
    expect((await pgfresh('migrate')).stdout).toBe('Nothing to do: the database is up to date.\n');
    expect(await json('type', 'show', 'earnings')).toMatchObject({
      type: { managed_by: 'sql', ttl: '1d', problem: null },
    });
  });

  it('is refused in the configuration, as long as it is managed by SQL', async () => {
    await configure(quote, profile, profile.replaceAll('profile', 'earnings'));
    const refused = await pgfresh('migrate');
    expect([refused.code, refused.stderr]).toEqual([
      3,
      expect.stringMatching(/PGF_TYPE_MANAGED_BY_SQL .*\nNext: Take it/),
    ]);
    const check = await pgfresh('check');
    expect([check.code, check.stdout]).toEqual([1, expect.stringContaining('✗ registry: The data type "earnings"')]);
    const handOver = /update .* = 'earnings'/.exec(refused.stderr)![0];
    await database.query(handOver);
    expect((await pgfresh('migrate')).stdout).toBe('~ data type earnings\n    ttl: 1d → 7d\n');
  });
});

it('type list and type show tell the same to people and to machines', async () => {
  expect((await pgfresh('type', 'list')).stdout).toMatch(
    /^data type +source +table +ttl +strategy +managed by +state\n/,
  );
  expect(await json('type', 'show', 'quote')).toMatchObject({
    type: {
      data_type: 'quote',
      key_columns: ['symbol'],
      ttl: '15m',
      max_run: '5m',
      key_pattern: null,
      managed_by: 'config',
    },
  });
  const { stdout } = await pgfresh('type', 'show', 'quote');
  expect(stdout).toMatch(/^depends_on +profile$/m);
  expect(stdout).not.toContain('key_pattern');
  const near = await pgfresh('type', 'show', 'qoute');
  expect([near.code, near.stderr]).toEqual([1, expect.stringContaining('did you mean "quote"?')]);
});

it('run registers what the configuration has, and says so', async () => {
  await configure(profile);
  const child = new CliProcess(['run', '--json'], { cwd, env: { DATABASE_URL: url, PGFRESH_PORT: '0' } });
  await child.printed(/"ready": true/);
  expect(child.stderr).toMatch(/"type":"registry\.synced".*"removed":2|"removed":2.*"type":"registry\.synced"/);
  child.signal('SIGTERM');
  expect(await child.exit).toBe(0);
  expect(await json('type', 'list')).toMatchObject({ types: [{ data_type: 'profile' }] });
});

describe('truth 25: a process starts although', () => {
  const ready = async (): Promise<string> => {
    const child = new CliProcess(['run', '--json'], { cwd, env: { DATABASE_URL: url, PGFRESH_PORT: '0' } });
    await child.printed(/"ready": true/);
    child.signal('SIGTERM');
    expect(await child.exit).toBe(0);
    return child.stderr;
  };
  const fetching = `schema: anything, request: (key) => ({ url: key }), rows: (answer) => answer`;
  const anything = `{ '~standard': { version: 1, vendor: 'none', validate: (value) => ({ value }) } }`;
  const fetched = (type: string) => type.replace(/ }$/, `, ${fetching.replace('anything', anything)} }`);

  it('a registered table was dropped, and says so', async () => {
    await configure(fetched(quote), fetched(profile));
    expect((await pgfresh('migrate')).code).toBe(0);
    await database.query('drop table public.quote cascade');
    expect(await ready()).toMatch(/quote: there is no table quote/);
    const check = await pgfresh('check');
    expect([check.code, check.stdout]).toEqual([1, expect.stringMatching(/✗ data type quote: .*no table/)]);
  });

  it('a changed data type cannot be registered, and says so', async () => {
    await configure(fetched(quote.replace('15m', '20m')), fetched(profile.replace('7d', '8d')));
    expect(await ready()).toMatch(/The data type .*quote.* was left out: table_name: there is no table public\.quote/);
    expect(
      await database.query(`select ttl::text from pgfresh.data_type_registry where data_type = 'profile'`),
    ).toEqual([{ ttl: '192:00:00' }]);
  });
});
