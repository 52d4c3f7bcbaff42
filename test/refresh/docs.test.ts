import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { dataTypeSchema } from '../../src/config/data-type.ts';
import { outcomes } from '../../src/refresh/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { runCli } from '../harness/process.ts';
import { Provider } from '../harness/provider.ts';

const page = await readFile('docs/guides/data-types.md', 'utf8');
const shown = (language: string) => new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, 's').exec(page)![1]!;

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'pgfresh-types-docs-'));
  await symlink(resolve('node_modules'), join(folder, 'node_modules'));
});
afterAll(() => rm(folder, { recursive: true }));

describe('docs/guides/data-types.md', () => {
  it('shows a data type that can be registered and tried', async () => {
    const provider = await Provider.start();
    provider.json('/quote/AAPL', { symbol: 'AAPL', price: 100, name: null, time: '2026-01-05T12:00:00Z' });
    const example = shown('ts').replace(
      `'https://api.example.com/v1'`,
      `'${provider.url}', allowPrivateAddresses: true`,
    );
    await writeFile(join(folder, 'pgfresh.config.ts'), example);
    const url = await createDatabase();
    await openDatabase(url).query(shown('sql'));
    const options = { cwd: folder, env: { DATABASE_URL: url } };
    expect(await runCli(['migrate'], options)).toMatchObject({ code: 0 });
    expect(await runCli(['check'], options)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('can refresh quote'),
    });
    const { code, stdout } = await runCli(['try', 'quote', 'aapl'], options);
    expect([code, stdout]).toEqual([0, expect.stringContaining('quote AAPL: fresh.')]);
  });

  it('names every option', () => {
    const unnamed = Object.keys(dataTypeSchema.shape).filter((option) => !new RegExp(`\`${option}\\b`).test(page));
    expect(unnamed).toEqual([]);
  });

  it('names every outcome of the source timestamp', () => {
    const told = [...page.matchAll(/^\| (?:newer|equal|older) \| .* \| `(\w+)`/gm)].map(([, outcome]) => outcome!);
    expect(told).toEqual(['fresh', 'unchanged', 'older_source', 'older_source']);
    for (const outcome of told) expect(outcomes).toHaveProperty(outcome);
  });
});
