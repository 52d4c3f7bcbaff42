import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { jobSchema } from '../../src/config/job.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';

const page = await readFile('docs/guides/scheduling.md', 'utf8');

it('docs/guides/scheduling.md names every column and every option of a job', async () => {
  const db = openDatabase(await createDatabase(), { poolSize: 1 });
  const columns = await db.query<{ name: string }>(
    `select attname as name from pg_attribute where attrelid = 'pgfresh.scheduled_jobs'::regclass and attnum > 0 and not attisdropped
     and attname not in ('id', 'resolution', 'created_at', 'updated_at')`,
  );
  const names = [...columns.map(({ name }) => name), ...Object.keys(jobSchema.shape)];
  expect(names.filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
});

it('docs/guides/scheduling.md names every state, reason and cause of a run', async () => {
  const db = openDatabase(await createDatabase(), { poolSize: 1 });
  const checks = await db.query<{ text: string }>(
    `select pg_get_constraintdef(oid) as text from pg_constraint where conrelid = 'pgfresh.scheduled_job_runs'::regclass and contype = 'c' and cardinality(conkey) = 1`,
  );
  const words = checks.flatMap(({ text }) => [...text.matchAll(/'(\w+)'/g)].map((match) => match[1]!));
  expect(words.length).toBeGreaterThan(10);
  expect(words.filter((word) => !page.includes(`\`${word}\``))).toEqual([]);
});
