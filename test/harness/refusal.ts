import { createHash } from 'node:crypto';
import { expect } from 'vitest';
import type { Queryable } from '../../src/database/index.ts';

/** Expects one of our coded errors as a function raises it: one line, not too long, with a hint. Returns it. */
export async function expectRefusal(call: Promise<unknown>, code: string): Promise<{ message: string; hint: string }> {
  const error = (await call.then(
    () => new Error('it was not refused'),
    (thrown: unknown) => (thrown as Error).cause ?? thrown,
  )) as Error & { hint: string };
  expect(error.message).toMatch(new RegExp(`^${code}: .`));
  expect(error).toMatchObject({ code: 'PGF01', hint: expect.stringMatching(/[.;?]$/) });
  // The passed value is quoted, but in one line and not all 10 kB of it.
  expect(error.message).not.toMatch(/\p{Cc}/u);
  expect(error.message.length).toBeLessThan(400);
  return error;
}

/** Expects the work to leave all tables of the schema unchanged. */
export async function expectNoChange(db: Queryable, act: () => Promise<void>): Promise<void> {
  const before = await fingerprint(db);
  await act();
  expect(await fingerprint(db)).toEqual(before);
}

/** How many rows each table has, and a hash of what is in them. */
async function fingerprint(db: Queryable): Promise<unknown[]> {
  const tables = await db.query<{ name: string }>({
    name: 'test.tables',
    text: `select c.oid::regclass::text as name from pg_class as c where c.relnamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace) and c.relkind = 'r' order by 1`,
  });
  const text = tables
    .map(
      ({ name }) =>
        `select '${name}' as name, count(*) as rows, md5(string_agg(t::text, ' ' order by t::text collate "C")) as hash from only ${name} as t`,
    )
    .join(' union all ')
    .concat(' order by name');
  // Prepared, because planning it costs ten times as much as running it.
  return db.query({ name: `test.${createHash('sha256').update(text).digest('base64url')}`, text });
}
