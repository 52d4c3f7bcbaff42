import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { jobSchema } from '../../src/config/job.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { playSession } from '../harness/sql-session.ts';

const page = await readFile('docs/guides/jobs.md', 'utf8');

it('the session of the page answers as the page says', async () => {
  expect(await playSession(page)).toBe(7);
});

it('the page names every column and every option', async () => {
  const db = openDatabase(await createDatabase(), { poolSize: 1 });
  const columns = await db.query<{ name: string }>(
    `select attname as name from pg_attribute where attrelid = 'pgfresh.scheduled_jobs'::regclass and attnum > 0 and not attisdropped
     and attname not in ('id', 'resolution', 'created_at', 'updated_at')`,
  );
  const names = [...columns.map(({ name }) => name), ...Object.keys(jobSchema.shape)];
  expect(names.filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
});
