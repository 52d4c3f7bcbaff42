import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { playSession } from '../harness/sql-session.ts';

const page = await readFile('docs/guides/leases.md', 'utf8');

it('docs/guides/leases.md shows a session that answers as it says', async () => {
  expect(await playSession(page)).toBeGreaterThan(12);
});

it('docs/guides/leases.md shows a program that does its work, and the next time says that it is not due', async () => {
  const url = await createDatabase();
  const db = openDatabase(url);
  await db.query('create table prices (symbol text primary key, price numeric)');
  const server = createServer((_, response) => response.end('[{"symbol": "AAPL", "price": 178.20}]')).listen(
    0,
    '127.0.0.1',
  );
  await once(server, 'listening');
  const folder = await mkdtemp(join(tmpdir(), 'pgfresh-leases-'));
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    await rm(folder, { recursive: true });
  });
  const program = /```ts\n(.*?)```/s
    .exec(page)![1]!
    .replace(`'pg'`, `'${import.meta.resolve('pg')}'`)
    .replace(`'pgfresh'`, `'${new URL('../../src/index.ts', import.meta.url).href}'`)
    .replace('https://example.com', `http://127.0.0.1:${(server.address() as AddressInfo).port}`)
    .replace('new pg.Pool()', `new pg.Pool({ connectionString: '${url}' })`);
  const file = join(folder, 'program.mts');
  await writeFile(file, program);
  const run = async () => (await promisify(execFile)(process.execPath, [file])).stdout;
  expect([await run(), await run()]).toEqual(['done\n', 'not_due\n']);
  expect(await db.query('select symbol, price::float8 from prices')).toEqual([{ symbol: 'AAPL', price: 178.2 }]);
});

it('docs/guides/leases.md has every reason and option', () => {
  const cells = [...page.matchAll(/^\| `(\w+)` \|/gm)].map(([, word]) => word);
  const reasons = ['locked', 'not_due', 'disabled', 'schedule_read_error'];
  const options = ['db', 'lease', 'maxRun', 'every', 'afterFailure', 'manual', 'signal'];
  expect(cells).toEqual([...reasons, ...options]);
});
