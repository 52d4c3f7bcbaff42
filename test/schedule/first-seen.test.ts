import { describe, expect, it } from 'vitest';
import { createLogin } from '../harness/login.ts';
import { openSession } from '../harness/session.ts';
import { LeaseScene } from './lease-scene.ts';

const { db, url, clock } = await LeaseScene.open();

const attach = (table: string) =>
  db.query(`create or replace trigger preserve_first_seen_at before insert or update on ${table}
    for each row execute function pgfresh.preserve_first_seen_at()`);

/** The minutes since each row was seen first. */
async function seen(table: string): Promise<Record<string, number | null>> {
  const rows = await db.query<{ key: string; age: number | null }>(
    `select key, round(extract(epoch from pgfresh.clock() - first_seen_at) / 60)::int as age from ${table}`,
  );
  return Object.fromEntries(rows.map(({ key, age }) => [key, age]));
}

describe('a table that keeps first_seen_at', () => {
  it('has it from the insert on; no update and no upsert changes it, with or without a value of its own', async () => {
    await db.query('create table signals (key text primary key, value int, first_seen_at timestamptz not null)');
    await attach('signals');
    await attach('public.signals');
    await db.query(`insert into signals values ('A', 1), ('B', 1), ('C', 1), ('D', 1)`);
    await db.query(`insert into signals values ('known', 1, pgfresh.clock() - interval '1 hour')`);
    await clock.advance('10 minutes');
    await db.query(
      `insert into signals (key, value) values ('A', 2), ('new', 2) on conflict (key) do update set value = excluded.value`,
    );
    await db.query(
      `insert into signals values ('B', 2, pgfresh.clock()) on conflict (key) do update set value = excluded.value, first_seen_at = excluded.first_seen_at`,
    );
    await db.query(`update signals set first_seen_at = null, value = 2 where key = 'C'`);
    await db.query(`
      merge into signals as s using (values ('D', 2)) as n(key, value) on s.key = n.key
      when matched then update set value = n.value, first_seen_at = pgfresh.clock() when not matched then insert values (n.key, n.value, null)`);
    await db.query(`update signals set first_seen_at = '-infinity', value = 2 where key = 'known'`);
    expect(await seen('signals')).toEqual({ A: 10, B: 10, C: 10, D: 10, known: 70, new: 0 });
    expect(await db.query('select distinct value from signals')).toEqual([{ value: 2 }]);
  });

  it('has it for rows that were there before from their next update on', async () => {
    await db.query(`create table older (key text primary key); insert into older values ('A'), ('B'), ('C')`);
    await db.query('alter table older add column first_seen_at timestamptz');
    await attach('older');
    await db.query(`update older set key = key where key = 'A'`);
    await db.query(`update older set first_seen_at = pgfresh.clock() - interval '5 minutes' where key = 'B'`);
    await clock.advance('1 minute');
    await db.query('update older set first_seen_at = pgfresh.clock() where key <> $1::text', ['C']);
    expect(await seen('older')).toEqual({ A: 1, B: 6, C: null });
  });

  it('may have partitions, between which rows move, and get more of them later', async () => {
    await db.query(`
      create table parted (key text, region int, first_seen_at timestamptz, primary key (key, region)) partition by list (region);
      create table parted_1 partition of parted for values in (1)`);
    await attach('parted');
    await db.query('create table parted_2 partition of parted for values in (2)');
    await db.query(`insert into parted values ('A', 1), ('B', 2), ('C', 1)`);
    await clock.advance('3 minutes');
    await attach('parted');
    await db.query(
      `insert into parted values ('A', 1, now()) on conflict (key, region) do update set first_seen_at = excluded.first_seen_at`,
    );
    await db.query(`update parted set region = 3 - region, first_seen_at = pgfresh.clock() where key <> 'A'`);
    await db.query(`insert into parted_2 values ('D', 2)`);
    expect(await seen('parted')).toEqual({ A: 3, B: 3, C: 3, D: 0 });
  });

  it.each([
    'Signals',
    'a b',
    `O'Neil`,
    'a"b',
    '日経',
    'a.b',
    `x'; drop schema pgfresh cascade; --`,
    'x'.repeat(63),
    'select',
    '%I',
  ])('may be called %s, in a schema of that name', async (name) => {
    const quoted = `"${name.replaceAll('"', '""')}"`;
    await db.query(
      `create schema ${quoted}; create table ${quoted}.${quoted} (key text primary key, first_seen_at timestamptz)`,
    );
    await attach(`${quoted}.${quoted}`);
    await db.query(`insert into ${quoted}.${quoted} values ('A')`);
    await clock.advance('1 minute');
    await db.query(`update ${quoted}.${quoted} set first_seen_at = null`);
    expect(await seen(`${quoted}.${quoted}`)).toEqual({ A: 1 });
  });

  it('may be written by somebody who has no right on the schema pgfresh', async () => {
    await db.query('create table written_by_others (key text, first_seen_at timestamptz)');
    await attach('written_by_others');
    const login = await createLogin(url);
    await db.query(`grant insert on written_by_others to ${login.name}`);
    await (await openSession(login.url)).query(`insert into written_by_others values ('A')`);
    expect(await seen('written_by_others')).toEqual({ A: 0 });
  });
});
