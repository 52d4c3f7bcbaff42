import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { recordedAt, type Recording } from '../../examples/market/recordings/record.ts';
import { Events } from '../../src/events/index.ts';
import { Worker } from '../../src/worker/index.ts';
import { openTypes } from '../examples/market/open-types.ts';
import { registerMarket } from '../examples/market/registered-market.ts';
import { apiKey, openMarket } from '../examples/market/scene.ts';
import { freezeClock } from '../harness/clock.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { runCli } from '../harness/process.ts';
import { Provider } from '../harness/provider.ts';
import { until } from '../worker/scene.ts';

const config = `import { defineConfig } from 'pgfresh';
import { z } from ${JSON.stringify(import.meta.resolve('zod'))};
export default defineConfig({
  sources: [{ name: 'market' }],
  dataTypes: [{
    name: 'quote', source: 'market', table: 'quote', key: 'symbol', timestamp: 'fetched_at', ttl: '1m',
    row: z.object({ symbol: z.string(), price: z.number() }),
  }],
});`;

test('contract 22: a NOT NULL column that the schema does not know fails the check, by type, table and column', async () => {
  const cwd = await mkdtemp(join(tmpdir(), 'pgfresh-contract-'));
  onTestFinished(() => rm(cwd, { recursive: true }));
  await writeFile(join(cwd, 'pgfresh.config.ts'), config);
  const url = await createDatabase();
  const database = openDatabase(url);
  await database.query(
    'create table public.quote (symbol text primary key, price numeric not null, fetched_at timestamptz not null)',
  );
  const pgfresh = (...args: string[]) => runCli(args, { cwd, env: { DATABASE_URL: url } });
  expect(await pgfresh('migrate')).toMatchObject({ code: 0 });
  expect(await pgfresh('check')).toMatchObject({ code: 0 });

  await database.query(`alter table public.quote add column currency text not null`);
  const { code, stdout } = await pgfresh('check');
  expect(code).toBe(1);
  expect(stdout).toMatch(
    /✗ data type quote: row: column currency of quote is not null and has no default, and the schema lacks it\n {2}Next: Add the field currency/,
  );

  await database.query(`alter table public.quote alter column currency set default 'USD'`);
  expect(await pgfresh('check')).toMatchObject({ code: 0 });
});

test('contract 22: a column that is gone, of another type or not null any more fails the check, by type, table and column', async () => {
  const cwd = await mkdtemp(join(tmpdir(), 'pgfresh-contract-'));
  onTestFinished(() => rm(cwd, { recursive: true }));
  const row = `row: z.object({ symbol: z.string(), price: z.number(), name: z.string().nullable(), volume: z.number() }),`;
  await writeFile(join(cwd, 'pgfresh.config.ts'), config.replace(/row: .*\n/, `${row}\n`));
  const url = await createDatabase();
  const database = openDatabase(url);
  await database.query(
    'create table public.quote (symbol text primary key, price numeric not null, name text, volume float8, fetched_at timestamptz not null)',
  );
  const pgfresh = (...args: string[]) => runCli(args, { cwd, env: { DATABASE_URL: url } });
  expect(await pgfresh('migrate')).toMatchObject({ code: 0 });
  expect(await pgfresh('check')).toMatchObject({ code: 0 });
  await database.query(
    `alter table public.quote alter column price type boolean using true, alter column name set not null, drop column volume`,
  );
  const { code, stdout } = await pgfresh('check');
  expect(code).toBe(1);
  for (const finding of [
    'column price of quote is boolean, and the schema has number',
    'column name of quote is not null, and the schema allows null',
    'quote has no column volume',
  ])
    expect(stdout).toContain(`data type quote: row: ${finding}`);
});

test('contract 22: the recorded answers of every data type of the market go through its schema into its table', async () => {
  const { url, db } = await openMarket();
  await freezeClock(db, recordedAt.toISOString());
  const provider = await Provider.start();
  const { sources, dataTypes = [] } = await registerMarket(db, {
    baseUrl: provider.url,
    rateLimitPerMinute: undefined,
    quotaBytes: undefined,
  });
  process.env['MARKET_API_KEY'] = apiKey;
  const events = new Events();
  const ended: Record<string, string> = {};
  events.on('refresh.ended', ({ dataType, key, outcome }) => void (ended[`${dataType} ${key}`] = outcome));
  const worker = new Worker({ db, url, listenUrl: url, events, sources, dataTypes, concurrency: 100, drainMs: 5_000 });
  onTestFinished(() => worker.stop());
  await worker.start();
  const expected: Record<string, string> = {};
  // The profile is the first of them, and the others refer to it.
  for (const type of openTypes) {
    const recordings = JSON.parse(
      await readFile(`examples/market/recordings/${type.name}.json`, 'utf8'),
    ) as Recording[];
    const rows = recordings.flatMap(({ key, request, body }) => {
      provider.json(request.url, body);
      const ofKey = [type.rows(type.schema.parse(body))].flat();
      expected[`${type.name} ${key}`] = ofKey.length > 0 ? 'fresh' : 'empty';
      return ofKey;
    });
    await db.query('select count(*) from pgfresh_engine.queue_refreshes($1::text, $2::text[])', [
      type.name,
      recordings.map(({ key }) => key),
    ]);
    await until(() => Object.keys(ended).length === Object.keys(expected).length);
    expect(ended).toEqual(expected);
    const columns = Object.keys(rows[0]!).join(', ');
    const all = (from: string, values: readonly unknown[] = []) =>
      db.query(`select to_jsonb(t) as row from (select ${columns} from ${from}) as t order by 1`, values);
    expect(await all(type.table)).toEqual(
      await all(`jsonb_populate_recordset(null::${type.table}, $1::jsonb)`, [JSON.stringify(rows)]),
    );
    expect(rows.length).toBeGreaterThan(4);
  }
  await worker.stop();
});
