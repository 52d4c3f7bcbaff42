import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { examineRegistry, listTypes, syncRegistry } from '../../src/registry/index.ts';
import { keepsPositive } from '../../src/registry/ttl-check.ts';
import { market, quote, scene, wanted } from './config-scene.ts';

let database: Database;
beforeAll(async () => {
  ({ database } = await scene());
  await database.query(`create type public.mood as enum ('good', 'bad');
    create domain public.ticker as text not null;
    create table public.wide (symbol ticker primary key, id bigint generated always as identity, count int not null, price numeric, share float8,
      note varchar(20), day date, at timestamptz, active boolean, mood mood, tags text[], more jsonb, place point,
      since timestamptz not null default now(), double int generated always as (count * 2) stored, fetched_at timestamptz not null)`);
});
beforeEach(() => database.query('delete from pgfresh.data_type_registry'));

const sync = (changes: object) =>
  syncRegistry(database, wanted({ sources: [market], dataTypes: [{ ...quote, ...changes }] }), new Events());
const examine = async (changes?: object) =>
  (await examineRegistry(database, wanted(changes ? { dataTypes: [{ ...quote, ...changes }] } : {}))).slice(1);

describe('the examination', () => {
  it('counts the data types', async () => {
    const first = async () => (await examineRegistry(database, wanted({})))[0]!.detail;
    expect(await first()).toBe('no data types yet');
    await sync({});
    expect(await first()).toBe('1 data type, all of them resolve');
  });

  it('shows a data type whose table has gone, with what to do', async () => {
    await database.query('create table public.passing (symbol text, fetched_at timestamptz)');
    await sync({ table: 'passing' });
    await database.query('drop table public.passing');
    expect(await examine()).toEqual([
      {
        name: 'data type quote',
        state: 'fatal',
        code: 'PGF_REGISTRY_INVALID',
        detail: 'table_name: there is no table public.passing',
        next: 'Create it, or correct table_name.',
      },
    ]);
  });

  it('shows a data type in quarantine, and so does the list', async () => {
    await sync({});
    expect((await listTypes(database))[0]).toMatchObject({ problem: null });
    for (const where of ['tick', 'probe'])
      await database.query(
        'select pgfresh_engine.note_type_timeout(type_id, $1::text, $2::text) from pgfresh.data_type_registry',
        [where, 'its table is locked'],
      );
    const detail = expect.stringMatching(
      /^it has not answered in time since .*\(probe: its table is locked\)$/,
    ) as string;
    const next = 'See what holds it up: a lock on quote, or a function of its registry row. It is probed every second.';
    expect(await examine()).toEqual([{ name: 'data type quote', state: 'warning', detail, next }]);
    expect((await listTypes(database))[0]).toMatchObject({ problem: { problem: detail, next } });
  });

  it('shows that the configuration differs', async () => {
    await sync({});
    expect(await examine({ ttl: '1h' })).toMatchObject([
      {
        name: 'registry',
        state: 'warning',
        detail: expect.stringMatching(/differs .*: data type quote$/) as string,
        next: 'Run "pgfresh migrate".',
      },
    ]);
    expect(await examine({ name: 'other' })).toMatchObject([
      { detail: expect.stringMatching(/: data type other, data type quote \(removed\)$/) as string },
    ]);
  });
});

describe('a TTL column', () => {
  it.each(['ttl_minutes', 'ttl'])('without a check gets the statement that adds it: %s', async (ttlColumn) => {
    await sync({ ttlColumn });
    const [finding, ...rest] = await examine();
    expect(finding).toMatchObject({
      name: 'data type quote',
      state: 'warning',
      detail: `ttl_column: the check that keeps ${ttlColumn} of public.quote positive is missing`,
    });
    expect(rest).toEqual([]);
    await database.query(finding!.next!.replace('Run: ', ''));
    expect(await examine()).toEqual([]);
    await expect(database.query(`insert into public.quote (symbol, ${ttlColumn}) values ('x', '0')`)).rejects.toThrow();
  });

  it('with a check that was never made for its rows gets the statement that makes it', async () => {
    await database.query('create table public.late (symbol text, fetched_at timestamptz, ttl int)');
    await database.query('alter table public.late add constraint "Positive" check (ttl > 0) not valid');
    await sync({ table: 'late', ttlColumn: 'ttl' });
    const [finding] = await examine();
    expect(finding!.next).toBe('Run: alter table public.late validate constraint "Positive";');
    await database.query(finding!.next!.replace('Run: ', ''));
    expect(await examine()).toEqual([]);
  });

  it.each<[string, boolean]>([
    ['ttl > 0', true],
    ['0 < ttl', true],
    ['ttl >= 1', true],
    ['ttl between 1 and 60', true],
    ['ttl is null or ttl > 0', true],
    ['ttl > 0 and ttl < other', true],
    ['other > 0 and ttl >= 5', true],
    ['ttl >= 0', false],
    ['ttl > -5', false],
    ['ttl < 60', false],
    ['ttl <> 0', false],
    ['ttl > 0 or other > 0', false],
    ['not (ttl > 0)', false],
    ['other > 0 and ttl is not null', false],
    ['ttl > other', false],
    [`span > interval '0'`, true],
    [`span >= interval '1 minute'`, true],
    [`span >= interval '1 day'`, true],
    [`span >= interval '0'`, false],
    [`span > interval '-1 day'`, false],
  ])('is kept positive by %s: %s', async (check, expected) => {
    await database.query('drop table if exists public.checked');
    await database.query(`create table public.checked (ttl int, other int, span interval, check (${check}))`);
    const [row] = await database.query<{ text: string }>(
      `select pg_get_expr(conbin, conrelid) as text from pg_constraint where conrelid = 'public.checked'::regclass and contype = 'c'`,
    );
    expect(keepsPositive(row!.text, check.includes('span') ? 'span' : 'ttl')).toBe(expected);
  });
});

describe('the schema of a row', () => {
  const fine = { symbol: z.string(), count: z.int() };
  const compared = async (row: unknown) => {
    const table = { table: 'wide', row };
    await sync(table);
    return examine(table);
  };

  it('that goes with the table is not worth a word', async () => {
    const row = z.object({
      ...fine,
      price: z.number().nullable(),
      share: z.number().optional(),
      note: z.string(),
      day: z.iso.date(),
      at: z.date().nullable(),
      active: z.boolean(),
      mood: z.enum(['good', 'bad']),
      tags: z.array(z.string()),
      more: z.json(),
      place: z.string(),
      fetched_at: z.date(),
    });
    expect(await compared(row)).toEqual([]);
    expect(await compared(z.object({ ...fine, price: z.string() }))).toEqual([]);
  });

  it.each<[string, z.ZodType, RegExp, RegExp]>([
    [
      'a field without column',
      z.object({ ...fine, prise: z.number() }),
      /^row: wide has no column prise; did you mean "price"\?$/,
      /^Add the column/,
    ],
    [
      'a column that it lacks',
      z.object({ symbol: z.string() }),
      /column count of wide is not null and has no default, and the schema lacks it$/,
      /^Add the field count/,
    ],
    [
      'a column that it leaves open',
      z.object({ ...fine, count: z.int().optional() }),
      /column count .*has it optional$/,
      /^Make the field count required/,
    ],
    [
      'a column that may be null in it',
      z.object({ ...fine, count: z.int().nullable() }),
      /column count of wide is not null, and the schema allows null$/,
      /^Do not allow null for the field count, or drop the column's not null\.$/,
    ],
    [
      'a domain that may be null in it',
      z.object({ ...fine, symbol: z.string().nullable() }),
      /column symbol of wide is not null, and the schema allows null$/,
      /null/,
    ],
    [
      'a null where a default is',
      z.object({ ...fine, since: z.string().nullable() }),
      /column since of wide is not null, and the schema allows null$/,
      /null/,
    ],
    [
      'a text for a number',
      z.object({ ...fine, count: z.string() }),
      /column count of wide is integer, and the schema has string$/,
      /^Give the field count/,
    ],
    [
      'a number for a text',
      z.object({ ...fine, note: z.number() }),
      /column note of wide is character varying\(20\), and the schema has number$/,
      /note/,
    ],
    [
      'a number for a time',
      z.object({ ...fine, at: z.int().nullable() }),
      /column at of wide is timestamp with time zone, and the schema has integer$/,
      /at/,
    ],
    [
      'a text for a boolean',
      z.object({ ...fine, active: z.string() }),
      /column active of wide is boolean, and the schema has string$/,
      /active/,
    ],
    [
      'a text for a list',
      z.object({ ...fine, tags: z.string() }),
      /column tags of wide is text\[\], and the schema has string$/,
      /tags/,
    ],
    [
      'one bad branch',
      z.object({ ...fine, count: z.union([z.int(), z.string()]) }),
      /column count .*the schema has string$/,
      /count/,
    ],
  ])('is fatal with %s', async (_name, row, detail, next) => {
    expect(await compared(row)).toEqual([
      {
        name: 'data type quote',
        state: 'fatal',
        code: 'PGF_ROW_MISMATCH',
        detail: expect.stringMatching(detail) as string,
        next: expect.stringMatching(next) as string,
      },
    ]);
  });

  const other = (more: object) => ({ '~standard': { version: 1, vendor: 'other', validate: () => ({}), ...more } });
  it.each<[string, unknown, RegExp]>([
    ['of a library that does not tell', other({}), /cannot be compared with wide: other does not tell/],
    ['of no object', z.string(), /it is not that of one object$/],
    [
      'that cannot be told',
      other({
        jsonSchema: {
          output: () => {
            throw new Error('no way');
          },
        },
      }),
      /: no way$/,
    ],
  ])('%s is left alone, and that is said', async (_name, row, detail) => {
    expect(await compared(row)).toMatchObject([{ state: 'ok', detail: expect.stringMatching(detail) as string }]);
  });

  it('is also read from another library that follows the standard', async () => {
    const output = () => ({
      type: 'object',
      properties: { symbol: { type: 'string' }, count: { type: 'boolean' } },
      required: ['symbol', 'count'],
    });
    expect(await compared(other({ jsonSchema: { output } }))).toMatchObject([
      { detail: 'row: column count of wide is integer, and the schema has boolean' },
    ]);
  });
});
