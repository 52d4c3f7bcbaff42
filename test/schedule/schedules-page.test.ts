import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { playSession } from '../harness/sql-session.ts';

const page = await readFile('docs/guides/scheduling.md', 'utf8');

it('the session of the page answers as the page says', async () => {
  expect(await playSession(page)).toBe(9);
});

it('the page names every state, reason and cause of a run', async () => {
  const db = openDatabase(await createDatabase(), { poolSize: 1 });
  const checks = await db.query<{ text: string }>(
    `select pg_get_constraintdef(oid) as text from pg_constraint where conrelid = 'pgfresh.scheduled_job_runs'::regclass and contype = 'c' and cardinality(conkey) = 1`,
  );
  const words = checks.flatMap(({ text }) => [...text.matchAll(/'(\w+)'/g)].map((match) => match[1]!));
  expect(words.length).toBeGreaterThan(10);
  expect(words.filter((word) => !page.includes(`\`${word}\``))).toEqual([]);
});
