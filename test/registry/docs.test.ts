import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { runCli } from '../harness/process.ts';

const page = await readFile('docs/internals/registry.md', 'utf8');
const shown = (language: string) => new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, 's').exec(page)![1]!;

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'pgfresh-registry-docs-'));
  await writeFile(join(folder, 'pgfresh.config.ts'), shown('ts'));
});
afterAll(() => rm(folder, { recursive: true }));

describe('docs/internals/registry.md', () => {
  it('shows SQL that runs, and the same types in the configuration', async () => {
    const url = await createDatabase();
    const database = openDatabase(url);
    await database.query(shown('sql'));
    const rows = () =>
      database.query(`select to_jsonb(r) - '{type_id,source_id,created_at,managed_by,ttl}'::text[] as row, extract(epoch from ttl) as ttl
        from pgfresh.data_type_registry as r order by data_type`);
    const limits = () =>
      database.query(`select to_jsonb(s) - '{id,created_at,quota_window,managed_by,config}'::text[] as row, extract(epoch from quota_window) as "window"
        from pgfresh.sources as s`);
    const [, ...bySql] = await rows();
    const bySqlLimits = await limits();
    expect(bySql).toHaveLength(2);
    await database.query('delete from pgfresh.data_type_registry');
    await database.query('delete from pgfresh.sources');
    expect(await runCli(['migrate'], { cwd: folder, env: { DATABASE_URL: url } })).toMatchObject({ code: 0 });
    expect(await rows()).toEqual(bySql);
    expect(await limits()).toEqual(bySqlLimits);
  });

  it('says what the registry answers', async () => {
    const database = openDatabase(await createDatabase());
    const [before, answers] = shown('sql').split(/(?<=order by data_type;\n)/) as [string, string];
    const select = /select data_type, managed_by.*;/.exec(before)![0];
    await database.query(before.replace(select, ''));
    const rows = await database.query<{ data_type: string; managed_by: string }>(select);
    expect(rows.map((row) => `-- ${row.data_type} | ${row.managed_by}\n`).join('')).toBe(answers);
  });
});
