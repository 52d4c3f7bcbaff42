import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Database } from '../../src/database/index.ts';
import type { Trial } from '../../src/refresh/index.ts';
import { runCommand } from '../harness/command-line.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { CliProcess } from '../harness/process.ts';
import { Provider } from '../harness/provider.ts';

let folder = '';
let cwd = '';
let url = '';
let database: Database;
let provider: Provider;

/** From here on commands find this configuration. */
async function configure(price = 'z.number()'): Promise<void> {
  cwd = await mkdtemp(join(folder, 'with-'));
  await writeFile(
    join(cwd, 'pgfresh.config.ts'),
    `import { defineConfig, defineDataType, defineSource } from 'pgfresh';
    import { z } from 'zod';
    const market = defineSource({ name: 'market', baseUrl: '${provider.url}', allowPrivateAddresses: true });
    const common = { source: market, table: 'quote', key: 'symbol', timestamp: 'fetched_at', ttl: '15m', normalise: 'upper' } as const;
    const quote = defineDataType({
      ...common,
      name: 'quote',
      schema: z.object({ symbol: z.string(), price: ${price} }),
      request: (key, { metadata }) => ({ url: '/quote/' + key, query: { full: metadata['full'] === true } }),
      rows: (answer) => ({ ...answer, price: Number(answer.price) }),
      sanity: { price: { above: 0 } },
    });
    const planned = defineDataType({ ...common, name: 'planned' });
    const listed = defineDataType({ ...quote, name: 'listed', empty: { status: [404], rows: 'delete' } });
    export default defineConfig({ dataTypes: [quote, planned, listed] });`,
  );
}

beforeAll(async () => {
  provider = await Provider.start();
  folder = await mkdtemp(join(tmpdir(), 'pgfresh-try-'));
  await symlink(resolve('node_modules'), join(folder, 'node_modules'));
  url = await createDatabase();
  database = openDatabase(url);
  await database.query(`create table public.quote (symbol text primary key, price numeric check (price <> 13), fetched_at timestamptz);
    insert into quote values ('AAPL', 100, '2026-01-05')`);
  await configure();
  expect(await pgfresh('migrate')).toMatchObject({ code: 0 });
});
afterAll(() => rm(folder, { recursive: true }));

const pgfresh = (...args: string[]) => runCommand(args, { cwd, env: { DATABASE_URL: url } });
const json = async <T = object>(...args: string[]) => JSON.parse((await pgfresh(...args, '--json')).stdout) as T;

describe('pgfresh try', () => {
  it('shows every check and the difference, and writes nothing', async () => {
    provider.json('/quote/AAPL', { symbol: 'AAPL', price: 101 });
    const { code, stdout } = await pgfresh('try', 'quote', 'aapl', '--metadata', '{"full":true}');
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(
        /✓ schema .*\n[^]*✓ write +New rows would be written\.\n[^]*price: 100 → 101[^]*quote AAPL: fresh\. New rows would be written\.\n.* Nothing was written to your table\.\n$/,
      ),
    ]);
    expect(stdout).not.toContain('were written');
    expect(await database.query('select price::text, fetched_at from quote')).toEqual([
      { price: '100', fetched_at: new Date('2026-01-05T00:00:00Z') },
    ]);
    expect(provider.asked).toEqual(['/quote/AAPL']);
    const [usage] = await database.query<{ bytes: number }>(
      'select sum(bytes)::int as bytes from pgfresh_engine.usage',
    );
    expect(usage!.bytes).toBeGreaterThan(30);
  });

  it('takes its place within the limit of its source and in the ledger, and says when there is none', async () => {
    provider.json('/quote/AAPL', { symbol: 'AAPL', price: 101 });
    const asked = provider.asked.length;
    const spent = async () => (await database.query(`select sum(calls)::int as calls from pgfresh_engine.usage`))[0];
    // Its one call may have been made before anybody counted.
    await database.query(`update pgfresh.sources set rate_limit_per_minute = 1`);
    const none = await pgfresh('try', 'quote', 'AAPL');
    expect([none.code, none.stdout]).toEqual([
      1,
      expect.stringMatching(
        /✗ call +the source market may not be called now, because its calls of this minute are used up \(until .*rate_limited\..*\n0 calls, 0 bytes/s,
      ),
    ]);
    expect([provider.asked.length, await spent()]).toEqual([asked, { calls: 1 }]);
    await database.query('truncate pgfresh_engine.rate_slot');
    expect(await json('try', 'quote', 'AAPL')).toMatchObject({ outcome: 'fresh', cost: { calls: 1 } });
    expect(await json('try', 'quote', 'AAPL')).toMatchObject({ outcome: 'rate_limited', cost: { calls: 0 } });
    expect([provider.asked.length, await spent()]).toEqual([asked + 1, { calls: 2 }]);
    await database.query(
      `update pgfresh.sources set rate_limit_per_minute = null; select pgfresh.pause_source('market', 'infinity', 'the invoice')`,
    );
    expect(await json('try', 'quote', 'AAPL')).toMatchObject({
      error: 'the source market may not be called now, because it is paused: the invoice',
    });
    await database.query(`select pgfresh.resume_source('market')`);
  });

  it('truth 3: names a refused API key unauthorized, also when the source waits for that reason', async () => {
    const denied = `pgfresh_engine.note_trouble(id, 1::smallint, null, 'denied', array['1'], 1, pgfresh.clock(), 'HTTP 401', pgfresh.clock())`;
    await database.query(`select ${denied} from pgfresh.sources where name = 'market'`);
    expect(await json('try', 'quote', 'AAPL')).toMatchObject({
      outcome: 'unauthorized',
      error: expect.stringMatching(
        /because it is paused: the provider refuses API key 1: HTTP 401 \(until \S+:\d\dZ\)$/,
      ) as string,
      cost: { calls: 0 },
    });
    await database.query(`select pgfresh.resume_source('market')`);
  });

  it('obeys a provider that asks for a pause', async () => {
    provider.answers.set('/quote/BUSY', (_request, response) => response.writeHead(429, { 'retry-after': '60' }).end());
    expect(await json('try', 'quote', 'BUSY')).toMatchObject({ outcome: 'rate_limited', cost: { calls: 1 } });
    expect(
      await database.query(
        `select paused_by, paused_until > clock_timestamp() + interval '30 seconds' as paused from pgfresh.sources`,
      ),
    ).toEqual([{ paused_by: 'provider', paused: true }]);
    await database.query(`select pgfresh.resume_source('market')`);
  });

  it('says as JSON what a machine wants to know', async () => {
    const trial = await json<Trial>('try', 'quote', 'AAPL');
    expect(trial).toMatchObject({
      dataType: 'quote',
      key: 'AAPL',
      outcome: 'fresh',
      cost: { calls: 1 },
      rows: [{ symbol: 'AAPL', price: 101 }],
      changes: [{ change: 'changed', before: { price: 100 } }],
    });
    expect(trial.checks.map(({ name, ok }) => [name, ok])).toEqual(
      [
        'request',
        'call',
        'content type',
        'JSON',
        'schema',
        'rows',
        'sanity',
        'key',
        'source timestamp',
        'table',
        'write',
      ].map((name) => [name, true]),
    );
  });

  it.each([
    ['LOW', { symbol: 'LOW', price: -1 }, 'sanity', 'sanity'],
    ['WRONG', { symbol: 'RIGHT', price: 1 }, 'wrong_key', 'key'],
    ['BAD', { symbol: 'BAD', price: 13 }, 'write_conflict', 'write'],
    ['NONE', { symbol: 'NONE' }, 'schema', 'schema'],
  ])('of %s fails honestly at its check', async (key, answer, outcome, check) => {
    provider.json(`/quote/${key}`, answer);
    const { code, stdout } = await pgfresh('try', 'quote', key, '--json');
    const trial = JSON.parse(stdout) as Trial;
    expect([code, trial.outcome, trial.checks.find(({ ok }) => ok === false)?.name]).toEqual([1, outcome, check]);
  });

  it.each([
    [['try', 'qoute', 'AAPL'], 1, /PGF_TYPE_UNKNOWN .*did you mean "quote"\?/],
    [['try', 'planned', 'AAPL'], 3, /PGF_FETCHER_MISSING .*"planned".*no data type here has the fetcher "planned"/],
    [['try', 'quote', 'AAPL', '--metadata', '[]'], 2, /--metadata: expected a JSON object/],
    [['refused', 'show', 'x'], 2, /expected the number of a refused answer, got "x"/],
    [['refused', 'replay', '99'], 2, /PGF_REFUSED_UNKNOWN/],
    [['refused', 'lst'], 2, /Did you mean list\?/],
    [['worker', '--types', 'qoute'], 1, /PGF_TYPE_UNKNOWN .*did you mean "quote"\?/],
  ])('%j is refused', async (args, code, message) => {
    const result = await pgfresh(...args);
    expect([result.code, result.stderr]).toEqual([code, expect.stringMatching(message)]);
  });
});

describe('truth 20: pgfresh try', () => {
  it('applies keyPattern and normalise before it spends a call', async () => {
    await database.query(
      `update pgfresh.data_type_registry set key_pattern = '^[A-Z]{1,5}$' where data_type = 'quote'`,
    );
    provider.json('/quote/AAPL', { symbol: 'AAPL', price: 101 });
    const asked = provider.asked.length;
    const { code, stderr } = await pgfresh('try', 'quote', 'apple inc');
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(
        /^PGF_KEY_UNKNOWN 'APPLE INC' is not a key of quote; its keys are those that match \^\[A-Z\]\{1,5\}\$\nNext: /,
      ),
    ]);
    expect(provider.asked.length).toBe(asked);
    expect(await json('try', 'quote', 'aapl')).toMatchObject({ key: 'AAPL', outcome: 'fresh' });
    await database.query(`update pgfresh.data_type_registry set key_pattern = null where data_type = 'quote'`);
  });
});

describe('truth 20: pgfresh refresh', () => {
  it('says that no worker runs instead of waiting for one', async () => {
    const { code, stdout } = await pgfresh('refresh', 'quote', 'aapl');
    expect([code, stdout]).toEqual([
      1,
      `quote AAPL has not been fetched yet: No worker is running: start one with "pgfresh run --roles worker".
Next: the refresh goes on; "pgfresh explain quote AAPL" shows it.\n`,
    ]);
    expect(await json('refresh', 'quote', 'AAPL', '--no-wait')).toMatchObject({ result: 'merged', attempt: null });
    await database.query(`select pgfresh.cancel_queue_jobs(p_data_type => 'quote')`);
  });

  it('waits for the end, tells how it went, and ends the wait of a job that failed', async () => {
    const worker = new CliProcess(['worker', '--port', '0'], { cwd, env: { DATABASE_URL: url } });
    await worker.printed(/is ready/);
    provider.json('/quote/NEW', { symbol: 'NEW', price: 5 });
    const good = await pgfresh('refresh', 'quote', 'new');
    expect([good.code, good.stdout]).toEqual([
      0,
      expect.stringMatching(/^quote NEW: fresh\. New rows were written\. \(1 call, \d+ bytes\)\n$/),
    ]);
    provider.json('/quote/NEW', { symbol: 'NEW', price: -1 });
    // When depends on chance: the retry may have begun already.
    const bad = await pgfresh('refresh', 'quote', 'NEW');
    expect([bad.code, bad.stdout]).toEqual([
      1,
      expect.stringMatching(
        /^quote NEW: sanity\. price is -1, not above 0 \(1 call, \d+ bytes\)\nNext: It is (?:tried again at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|being tried again)\. "pgfresh try quote NEW"/,
      ),
    ]);
    const later = `update pgfresh_engine.job set run_at = pgfresh.clock() + interval '1 hour' where state = 'w' returning id`;
    while ((await database.query(later)).length === 0);
    provider.json('/quote/NEW', { symbol: 'NEW', price: 6 });
    const again = await json<{ result: string }>('refresh', 'quote', 'NEW');
    expect(again).toMatchObject({ result: 'merged', attempt: { status: 'succeeded', outcome: 'fresh' } });
    worker.signal('SIGTERM');
    expect(await worker.exit).toBe(0);
  });

  it('truth 22: and every command shows times in one format', async () => {
    // One format for times, to the second; as JSON they are whole.
    await database.query(`select pgfresh.pause_source('market', pgfresh.clock() + interval '1 hour')`);
    for (const args of [
      ['explain', 'quote', 'NEW'],
      ['source', 'list'],
      ['source', 'show', 'market'],
      ['refused', 'list'],
      ['migrate', 'status'],
      ['top', '--once'],
    ]) {
      const { stdout } = await pgfresh(...args);
      const times = stdout.match(/\d{4}-\d\d-\d\d\S*( \d\d:\S*)?|\d\d:\d\d:\d\d\S*/g) ?? [];
      expect([
        args,
        times.length > 0,
        times.filter((time) => !/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ[.,:]?$/.test(time)),
      ]).toEqual([args, true, []]);
    }
    await database.query(`select pgfresh.resume_source('market')`);
    // Other tests count what was fetched.
    await database.query(
      `truncate pgfresh_engine.history_succeeded, pgfresh_engine.history_other, pgfresh_engine.history_attempt; delete from pgfresh_engine.refused_answer`,
    );
  });

  it.each([
    [['refresh', 'qoute', 'AAPL'], 1, /PGF_TYPE_UNKNOWN .*did you mean "quote"\?/],
    [['refresh', 'quote', ''], 1, /PGF_KEY_INVALID/],
    [['refresh', 'quote', 'A', '--timeout', 'soon'], 2, /expected a positive time/],
    [['refresh', 'quote', 'A', '--timeout', '30d'], 2, /expected a time from 1ms to 1d/],
  ])('%j is refused', async (args, code, message) => {
    const result = await pgfresh(...args);
    expect([result.code, result.stderr]).toEqual([code, expect.stringMatching(message)]);
  });
});

describe('in a folder without a configuration', () => {
  const elsewhere = async (...args: string[]) =>
    runCommand(args, { cwd: await temporaryFolder('no-config'), env: { DATABASE_URL: url } });
  const next = 'Next: Pass --config <file>, or run the command in the folder that has pgfresh.config.ts.';

  it('try says that there is none', async () => {
    expect(await elsewhere('try', 'quote', 'AAPL')).toMatchObject({
      code: 3,
      stderr: `PGF_CONFIG_ABSENT No configuration file was found in this folder, so the data type "quote" cannot be fetched.\n${next}\n`,
    });
    expect((await elsewhere('try', 'qoute', 'AAPL')).stderr).toMatch(/PGF_TYPE_UNKNOWN .*did you mean "quote"\?/);
  });

  it('check says it of data types and handlers, and blames neither', async () => {
    await database.query(
      `insert into pgfresh.scheduled_jobs (name, kind, function_name, schedule) values ('signals', 'handler', 'signals', '@yearly')`,
    );
    const { code, stdout } = await elsewhere('check');
    await database.query(`delete from pgfresh.scheduled_jobs where name = 'signals'`);
    const absent = 'No configuration file was found in this folder, so';
    expect(code).toBe(1);
    expect(stdout).toContain(`! worker: ${absent} no data type can be refreshed.\n  ${next}\n`);
    expect(stdout).toMatch(/^! jobs: \d+ jobs?, 1 of them cannot run$/m);
    expect(stdout).toContain(`✗ job signals: ${absent} the handler "signals" is not known.\n  ${next}\n`);
    expect(stdout).toMatch(/\n1 of \d+ checks is fatal\.\n$/);
  });
});

describe('truth 19: in a folder whose configuration is not the one that runs', () => {
  it('check says who serves data types and handlers, and which configuration to name', async () => {
    const other = await temporaryFolder('other-config');
    await mkdir(join(other, 'examples/market'), { recursive: true });
    await writeFile(join(other, 'examples/market/pgfresh.config.ts'), 'export default {};');
    await database.query(
      `insert into pgfresh.scheduled_jobs (name, kind, function_name, schedule) values ('signals', 'handler', 'signals', '@yearly')`,
    );
    const [worker] = await database.query<{ id: number }>(
      `select pgfresh_engine.register_process('worker', 'elsewhere') as id`,
    );
    const [scheduler] = await database.query<{ id: number }>(
      `select pgfresh_engine.serve_jobs(pgfresh_engine.register_process('scheduler', 'elsewhere'), '{signals}', '2026a') as id`,
    );
    await database.query(`update pgfresh_engine.process set lease_until = 'infinity' where kind = 'scheduler'`);
    const check = () => runCommand(['check'], { cwd: other, env: { DATABASE_URL: url } });
    const { code, stdout } = await check();
    await database.query(`delete from pgfresh_engine.process where id = $1`, [scheduler!.id]);
    const alone = await check();
    await database.query(`delete from pgfresh.scheduled_jobs where name = 'signals'`);
    await database.query(`select pgfresh_engine.retire_process($1::bigint)`, [worker!.id]);
    expect(stdout).toMatch(
      /^✓ worker: the workers that run refresh listed, planned, quote\. No configuration file was found .*\n {2}Next: Pass --config examples\/market\/pgfresh\.config\.ts\.$/m,
    );
    expect(stdout).not.toMatch(/job signals/);
    expect(code).toBe(0);
    expect([alone.code, alone.stdout]).toEqual([1, expect.stringContaining('✗ job signals: ')]);
  });
});

describe('pgfresh worker', () => {
  it('refreshes, keeps what it refuses, and ends by SIGTERM', async () => {
    provider.json('/quote/GOOD', { symbol: 'GOOD', price: 5 });
    provider.json('/quote/TEXT', { symbol: 'TEXT', price: '6' });
    const worker = new CliProcess(['worker', '--types', 'quote', '--port', '0'], { cwd, env: { DATABASE_URL: url } });
    await worker.printed(/is ready/);
    await database.query(`select count(*) from pgfresh_engine.queue_refreshes('quote', '{GOOD,TEXT}')`);
    await worker.printed(/TEXT: schema/);
    const price = () => database.query(`select price::text from quote where symbol = 'GOOD'`);
    while ((await price()).length === 0);
    worker.signal('SIGTERM');
    expect(await worker.exit).toBe(0);
    expect(await database.query(`select status, outcome from pgfresh.api_call_queue order by 1`)).toEqual([
      { status: 'failed', outcome: 'schema' },
      { status: 'succeeded', outcome: 'fresh' },
    ]);
    const { answers } = await json<{ answers: { id: number }[] }>('refused', 'list');
    expect(answers).toMatchObject([{ dataType: 'quote', key: 'TEXT', outcome: 'schema', status: 200 }]);
    const { id } = answers[0]!;
    expect(await json('refused', 'show', String(id))).toMatchObject({ body: '{"symbol":"TEXT","price":"6"}' });
    const still = await pgfresh('refused', 'replay', String(id));
    expect([still.code, still.stdout]).toEqual([1, expect.stringContaining('now schema: price')]);
    await configure('z.coerce.number()');
    const now = await pgfresh('refused', 'replay', String(id));
    expect([now.code, now.stdout]).toEqual([
      0,
      expect.stringMatching(/now it passes, with 1 row\.[^]*retry_failed_jobs/),
    ]);
  });
});

describe('pgfresh refused replay --write', () => {
  it('truth 15: accepts an answer that was refused as suspicious', async () => {
    await database.query(`insert into quote values ('LOST', 1, pgfresh.clock() - interval '1 hour')`);
    await database.query(
      `select pgfresh_engine.keep_refused_answer(type_id, 'LOST', null, 'suspicious', '251 of 1000', 404, null, 0, '')
       from pgfresh.data_type_registry where data_type = 'listed'`,
    );
    const { answers } = await json<{ answers: { id: number }[] }>('refused', 'list', 'listed');
    const id = String(answers[0]!.id);
    const rows = () => database.query(`select symbol from quote where symbol = 'LOST'`);
    const looked = await pgfresh('refused', 'replay', id);
    expect([looked.code, looked.stdout]).toEqual([0, expect.stringContaining(`pgfresh refused replay ${id} --write`)]);
    expect(await rows()).toHaveLength(1);
    const accepted = await pgfresh('refused', 'replay', id, '--write');
    expect([accepted.code, accepted.stdout]).toEqual([0, expect.stringContaining('accepted and written: empty.')]);
    expect(await rows()).toEqual([]);
    expect(await pgfresh('refused', 'replay', id, '--write')).toMatchObject({ code: 2 });
  });
});
