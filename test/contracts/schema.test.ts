import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { runCli } from '../harness/process.ts';

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
