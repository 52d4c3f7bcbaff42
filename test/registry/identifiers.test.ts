import { beforeAll, expect, it } from 'vitest';
import { seededRandom } from '../harness/random.ts';
import { RegistryScene } from './scene.ts';

const random = seededRandom(20260105);
const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)]!;

/** Names that exist, as tables, columns and functions alike, among them words of SQL and names that need quotes. */
const real = ['mirror', 'select', 'Order', 'user', '_', 'A1', 'x'.repeat(63), 'drop_table', 'null', 'KEY'] as const;

const fragments = [
  `; drop table canary; --`,
  `" ; drop table canary; --`,
  `' or public.boom() is null --`,
  ` where (select public.boom() is null)`,
  `$$; select public.boom(); $$`,
  `(public.boom())`,
  `/*`,
  `*/`,
  `--`,
  `"`,
  `""`,
  `'`,
  `\\`,
  `\\"`,
  `%I`,
  `%s`,
  `$1`,
  `.`,
  `..`,
  ` `,
  `\t`,
  `\n`,
  `\r`,
  `\u0001`,
  `\u001b[31m`,
  `\u007f`,
  `\u00a0`,
  `\u200b`,
  `\u202e`,
  `\ufeff`,
  `\uff0e`,
  `\uff02`,
  `\u02bc`,
  `é`,
  `e\u0301`,
  `ſelect`,
  `K`,
  `İ`,
  `ß`,
  `日経`,
  `🪙`,
  `::text`,
  `, `,
  `=`,
  `pg_temp.`,
  `pg_catalog.`,
  `pg_toast.`,
  `public.`,
  `pgfresh.`,
  `information_schema.`,
  `U&"d\\0061t"`,
  `E'\\x00'`,
  `x`.repeat(64),
  `y`.repeat(200),
  `z`.repeat(1_000),
  `0`,
  `1e9`,
  `-`,
  `$`,
  `[1]`,
  `{a,b}`,
] as const;

function hostile(): string {
  const kind = random();
  if (kind < 0.05) return pick(real);
  if (kind < 0.1) return `public.${pick(real)}`;
  if (kind < 0.5) return pick(real) + pick(fragments);
  if (kind < 0.7) return pick(fragments) + pick(real);
  if (kind < 0.9)
    return Array.from({ length: 1 + Math.floor(random() * 6) }, () => pick(random() < 0.3 ? real : fragments)).join('');
  // Anything that is a text; PostgreSQL has no zero character, and no half of a pair.
  return Array.from({ length: 1 + Math.floor(random() * 70) }, () =>
    String.fromCodePoint(1 + Math.floor(random() * (random() < 0.7 ? 0x7e : 0xd7fe))),
  ).join('');
}

/** What a name is, said another way than in SQL. */
const isName = (text: string): boolean => /^[A-Za-z_][A-Za-z0-9_]{0,62}(?![^])/.test(text);
const partsOf = (text: string): string[] | null => {
  const parts = text.split('.');
  const both = parts.length === 1 ? ['public', ...parts] : parts;
  return both.length === 2 && both.every(isName) && !both[0]!.startsWith('pg_') ? both : null;
};

let scene: RegistryScene;

beforeAll(async () => {
  scene = await RegistryScene.open();
  await scene.db.query(`
    create table canary (alive boolean); insert into canary values (true);
    create sequence booms; create function public.boom() returns text language sql as $$ select nextval('public.booms')::text $$;
    grant usage on sequence booms to pgfresh_evaluator;
    drop table mirror`);
  const names = real.map((name) => `"${name}"`);
  const columns = names.map((name) => `${name} text`).join(', ');
  for (const name of names)
    await scene.db.query(`
      create table ${name} (key text, fetched_at timestamptz, ${columns});
      create function ${name}(timestamptz, interval) returns boolean language sql as 'select false';
      create function ${name}(text, text) returns boolean language sql as 'select true'`);
  await scene.db.query(`
    grant select on all tables in schema public to pgfresh_evaluator;
    create table times (key text, ${names.map((name) => `${name} timestamptz`).join(', ')});
    create table ttls (key text, fetched_at timestamptz, ${names.map((name) => `${name} interval`).join(', ')});
    create table flags (key text, ${names.map((name) => `${name} boolean`).join(', ')});
    grant select on times, ttls, flags to pgfresh_evaluator;
    create function try_split(name text) returns text[] language plpgsql as $$
      begin return pgfresh_engine.split_name('table_name', name); exception when sqlstate 'PGF01' then return null; end $$;
    -- The statements that a name gets into, or null if it is refused in our words. Every other error ends the test.
    create function try_resolve(field text, name text, fixed jsonb) returns text language plpgsql as $$
      declare
        v_row pgfresh.data_type_registry := (select r from pgfresh.data_type_registry as r where data_type = 'base');
        v_made pgfresh_engine.type_resolution;
      begin
        v_row := jsonb_populate_record(v_row, fixed || jsonb_build_object(field, case when field = 'key_columns' then jsonb_build_array(name) else to_jsonb(name) end));
        v_made := pgfresh_engine.resolve_type(v_row, false);
        return concat_ws(E'\\n', v_made.check_sql, v_made.missing_sql, v_made.gate_sql, v_made.keys_sql, v_made.unknown_sql);
      exception when sqlstate 'PGF01' then return null;
      end $$`);
  await scene.add('base');
});

it('100,000 hostile names: each is a plain name or not valid', async () => {
  const names = Array.from({ length: 100_000 }, hostile);
  const valid = await scene.value<boolean[]>(
    '(select jsonb_agg(pgfresh.is_valid_identifier(n.name) order by n.place) from unnest($1::text[]) with ordinality as n(name, place))',
    [names],
  );
  expect(names.filter((name, n) => valid[n] !== isName(name))).toEqual([]);
  expect(valid.filter(Boolean).length).toBeGreaterThan(5_000);
});

it('5,000 hostile names: each is a schema and a name, or refused', async () => {
  const names = Array.from({ length: 5_000 }, hostile);
  const parts = await scene.value<(string[] | null)[]>(
    '(select jsonb_agg(to_jsonb(try_split(n.name)) order by n.place) from unnest($1::text[]) with ordinality as n(name, place))',
    [names],
  );
  expect(names.filter((name, n) => JSON.stringify(parts[n]) !== JSON.stringify(partsOf(name)))).toEqual([]);
  expect(parts.filter(Boolean).length).toBeGreaterThan(500);
  await expectNothingRan();
});

const fields: Record<string, Record<string, unknown>> = {
  table_name: {},
  key_columns: {},
  timestamp_column: { table_name: 'times' },
  ttl_column: { table_name: 'ttls' },
  staleness_function: { table_name: 'ttls' },
  gate_function: { table_name: 'ttls' },
  gate_opens_function: { gate_function: 'mirror' },
  key_table: { table_name: 'ttls', key_table_column: 'key' },
  key_table_column: { key_table: 'mirror' },
  key_active_column: { key_table: 'flags', key_table_column: 'key' },
};

it.each(Object.entries(fields))(
  '%s gets into a statement as a name that was looked up, or is refused',
  async (field, fixed) => {
    const names = Array.from({ length: 250 }, hostile);
    const rows = await scene.db.query<{ name: string; sql: string; quoted: string; whole: string }>(
      `select t.name, t.sql, quote_ident(t.name) as quoted, (select string_agg(quote_ident(part), '.') from unnest(try_split(t.name)) as part) as whole
     from (select n.name, try_resolve($2::text, n.name, $3::jsonb) as sql from unnest($1::text[]) as n(name) offset 0) as t where t.sql is not null`,
      [names, field, JSON.stringify(fixed)],
    );
    // Only those that exist; of our own, one function has the name of none.
    const isReal = (name: string) => real.some((known) => name === known || name === `public.${known}`);
    expect(rows.map(({ name }) => name).filter((name) => !isReal(name))).toEqual([]);
    if (field === 'gate_opens_function') expect(rows).toEqual([]);
    else expect(rows.length).toBeGreaterThan(10);
    // With the name taken out, all are the same statement.
    const shapes = new Set(
      rows.map(({ sql, quoted, whole }) =>
        field.endsWith('column') || field === 'key_columns'
          ? sql.replaceAll(`x.${quoted}`, 'x.?')
          : sql.replaceAll(new RegExp(`${whole.replaceAll(/[.]/g, '\\.')}(?=\\(| as x)`, 'g'), '?'),
      ),
    );
    expect(shapes.size).toBeLessThanOrEqual(1);
    for (const shape of shapes) expect(shape).toMatch(/\?/);
    // And they run.
    for (const { sql } of rows.slice(0, 3)) {
      await scene.db.query(
        `select pgfresh_engine.write_check(jsonb_populate_record(
          null::pgfresh_engine.type_resolution, jsonb_build_object('type_id', 1000000, 'check_sql', $1::text)))`,
        [sql.split('\n')[0]],
      );
      const answers = await scene.db.query<{ raised: string | null }>(
        `select raised from pgfresh_engine.ask_stale(1000000, '{A}', array[null::timestamptz], array[null::timestamptz], array[null::timestamptz], '1 minute', now())`,
      );
      expect(answers).toEqual([{ raised: null }]);
    }
    await expectNothingRan();
  },
);

async function expectNothingRan(): Promise<void> {
  expect(await scene.value('(select alive from canary)')).toBe(true);
  expect(await scene.value('(select is_called from booms)')).toBe(false);
}
