import { beforeAll, describe, expect, it } from 'vitest';
import type { Database } from '../../src/database/index.ts';
import { missingGrants, readTableRights, tableGrants, type TableRight } from '../../src/registry/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { createLogin } from '../harness/login.ts';

const writing: TableRight[] = ['select', 'insert', 'update'];
let db: Database;
let login: Database;
let name = '';

beforeAll(async () => {
  const url = await createDatabase();
  db = openDatabase(url);
  const made = await createLogin(url);
  name = made.name;
  login = openDatabase(made.url, { poolSize: 1 });
  await db.query(`
    create schema own;
    create table own."Odd" (id serial primary key, number int generated always as identity, price int);
    create sequence own.shared_numbers;
    create table public.shared (id bigint primary key default nextval('own.shared_numbers'), price int);
    create table public.guarded (key text primary key);
    alter table public.guarded enable row level security;`);
});

/** What the login lacks on a table; runs it, and expects that it helps. */
async function lacking(table: string, rights: readonly TableRight[]): Promise<string[]> {
  const known = await readTableRights(login, [table]);
  const grants = missingGrants(known.get(table)!, rights);
  for (const grant of grants) await db.query(grant);
  expect(missingGrants((await readTableRights(login, [table])).get(table)!, rights)).toEqual([]);
  return grants;
}

describe('truth 18: the grants that are missing are named, and are enough', () => {
  it('of schema, table and the sequences of its defaults, but not of identities', async () => {
    expect(await lacking('own.Odd', writing)).toEqual([
      `grant usage on schema own to ${name};`,
      `grant select, insert, update on own."Odd" to ${name};`,
      `grant usage on sequence own."Odd_id_seq" to ${name};`,
    ]);
    await login.query('insert into own."Odd" (price) values (1) on conflict (id) do update set price = 2');
  });

  it('of a sequence that belongs to no column', async () => {
    expect(await lacking('shared', writing)).toEqual([
      `grant select, insert, update on public.shared to ${name};`,
      `grant usage on sequence own.shared_numbers to ${name};`,
    ]);
    await login.query('insert into shared (price) values (1)');
  });

  it('of a table with row security, unless a policy lets the login write', async () => {
    expect(await lacking('guarded', ['select', 'insert', 'update', 'delete'])).toEqual([
      `grant select, insert, update, delete on public.guarded to ${name};`,
      `create policy pgfresh_worker on public.guarded to ${name} using (true) with check (true);`,
    ]);
    await login.query(`insert into guarded values ('a')`);
    expect(await login.query('delete from guarded returning key')).toEqual([{ key: 'a' }]);
  });

  it('and none where every column may be written one by one', async () => {
    await db.query(`
      create table public.by_column (key text primary key, price int, twice int generated always as (price * 2) stored);
      grant select, insert (key, price), update (key, price) on public.by_column to ${name};`);
    expect(await lacking('by_column', writing)).toEqual([]);
    await db.query(`alter table public.by_column add later int`);
    expect(await lacking('by_column', writing)).toEqual([`grant insert, update on public.by_column to ${name};`]);
  });
});

it('all grants for a login that is not there yet', async () => {
  const known = await readTableRights(db, ['own.Odd', 'absent']);
  expect([...known.keys()]).toEqual(['own.Odd']);
  expect(tableGrants(known.get('own.Odd')!, ['select', 'insert'], '"app"')).toEqual([
    'grant usage on schema own to "app";',
    'grant select, insert on own."Odd" to "app";',
    'grant usage on sequence own."Odd_id_seq" to "app";',
  ]);
});
