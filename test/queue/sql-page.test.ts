import { readFile } from 'node:fs/promises';
import { beforeAll, expect, it } from 'vitest';
import { calledByUsers } from '../harness/called-functions.ts';
import { readFunctions, readRelations, type SqlFunction, type SqlRelation } from '../../scripts/sql-catalogue.ts';
import { sqlPage } from '../../scripts/sql-page.ts';
import { manifestText, migrate, readSqlFiles, type Database } from '../../src/database/index.ts';
import { errorTable } from '../../src/errors/index.ts';
import { Events } from '../../src/events/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';

/** Functions that may be looked up by any search path, each with the reason. */
const unpinned: Readonly<Record<string, string>> = {
  band_of: 'only arithmetic, for every job that is planned; a function with settings is never inlined',
  canonical_key: 'one choice, for every heartbeat; a function with settings is never inlined',
  confirmed_of: 'one comparison, for every pair that the planner reads; a function with settings is never inlined',
  has_key_rules: 'only comparisons, for every call that enqueues; a function with settings is never inlined',
  is_row_lost: 'only comparisons, for every pair that is read; a function with settings is never inlined',
  is_valid_key: 'only comparisons, for every key; a function with settings is never inlined',
  lane_of: 'only arithmetic, for every job that is planned; a function with settings is never inlined',
  priority_of: 'one comparison, for every job that is planned; a function with settings is never inlined',
  row_time_of: 'one comparison, for every pair that the planner reads; a function with settings is never inlined',
  state_of: 'only comparisons, for every pair that is viewed; a function with settings is never inlined',
  token_of: 'only arithmetic, and it must be inlined into the scan of an end; a function with settings never is',
};

let db: Database;
let functions: SqlFunction[];
let relations: SqlRelation[];

beforeAll(async () => {
  db = openDatabase(await createDatabase());
  functions = await readFunctions(db);
  relations = await readRelations(db);
});

it('docs/reference/sql.md is what the comments say', async () => {
  expect(await readFile('docs/reference/sql.md', 'utf8'), 'run "npm run docs"').toBe(await sqlPage(db));
});

it('sql/manifest.json is what the files make', async () => {
  expect(await readFile('sql/manifest.json', 'utf8'), 'run "npm run docs"').toBe(await manifestText(db));
});

it('every function, view, table and row type has a comment that is a sentence', () => {
  const silent = [...functions, ...relations].filter(({ comment }) => !/^[A-Z].*\.$/s.test(comment ?? ''));
  expect(silent.map(({ name }) => name)).toEqual([]);
});

it('a function has one signature, so that every call is clear', () => {
  const names = functions.map(({ name }) => name);
  // Many systems count minutes; an interval says more.
  expect(names.filter((name, index) => names.indexOf(name) !== index)).toEqual(['is_data_stale']);
  expect(calledByUsers.filter((name) => !names.includes(name))).toEqual([]);
});

it('no function can be led astray by a search path', () => {
  const free = functions.filter(({ searchPath }) => searchPath === null).map(({ name }) => name);
  // This one sets the search path for what comes after it, and so can have none of its own; its names have their schema.
  expect(free.filter((name) => name !== 'clear_leftovers')).toEqual(Object.keys(unpinned));
  // Users' functions are called by their full names, but their bodies may rely on the schema public.
  const wider = functions.filter(({ searchPath }) => searchPath !== null && searchPath !== 'pg_catalog, pg_temp');
  expect(new Set(wider.map(({ searchPath }) => searchPath))).toEqual(new Set(['pg_catalog, public, pg_temp']));
  expect(wider.map(({ name }) => name)).toEqual(['ask_gate', 'ask_keys', 'ask_next_keys', 'ask_rows', 'ask_stale']);
});

it('functions without a pinned search path touch no table and call nothing but what is built in', async () => {
  const plain = await db.query<{ name: string }>(
    `select proname as name from pg_proc as p join pg_language as l on l.oid = p.prolang
     where p.pronamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace) and proname = any ($1::text[])
       and l.lanname = 'sql' and p.provolatile <> 'v' and not p.prosecdef and p.prosrc !~* '\\m(from|join|into|update)\\M'
     order by proname`,
    [Object.keys(unpinned)],
  );
  expect(plain.map(({ name }) => name)).toEqual(Object.keys(unpinned));
});

it('nothing is for everybody', async () => {
  expect([...functions, ...relations].filter((entry) => entry.forEverybody).map(({ name }) => name)).toEqual([]);
  const [open] = await db.query(
    `select has_schema_privilege('public', 'pgfresh', 'usage') as schema,
       (select count(*)::int from pg_class where relnamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace)
         and case when relkind = 'S' then has_sequence_privilege('public', oid, 'usage, select, update') end) as sequences`,
  );
  expect(open).toEqual({ schema: false, sequences: 0 });
});

it('a function that a later version adds is not for everybody either', async () => {
  const files = await readSqlFiles();
  const later = `create function pgfresh.later() returns int language sql as 'select 1';`;
  const changed = files.functions.map((file) =>
    file.name === 'api/rules' ? { ...file, text: file.text + later, hash: 'later' } : file,
  );
  const upgraded = openDatabase(await createDatabase());
  await migrate(upgraded, { files: { ...files, functions: changed }, events: new Events() });
  const added = (await readFunctions(upgraded)).find(({ name }) => name === 'later');
  expect(added).toMatchObject({ forEverybody: false });
});

it('every code that a function raises is in the table of errors', () => {
  const raised = functions.flatMap(({ body }) => [...body.matchAll(/'(PGF_\w+)'/g)].map((match) => match[1]!));
  expect(raised.length).toBeGreaterThan(0);
  expect([...new Set(raised)].filter((code) => !(code in errorTable))).toEqual([]);
});
