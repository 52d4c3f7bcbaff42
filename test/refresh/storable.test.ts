import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { storableJson } from '../../src/database/index.ts';
import { storableText, storableValue } from '../../src/database/storable-text.ts';
import { quoteType, RefreshScene } from './scene.ts';

const half = '\ud83d';

describe('sound 1: text that PostgreSQL cannot store', () => {
  it('is written with a replacement, whether it is a value, deep in JSON or the name of a field', async () => {
    const type = quoteType({
      table: 'noted',
      sourceTimestamp: undefined,
      schema: z.object({ symbol: z.string(), note: z.string(), more: z.record(z.string(), z.any()) }),
      rows: (answer) => answer as object,
      sanity: undefined,
    });
    const scene = await RefreshScene.open([type], [], '10s', undefined, [
      'create table public.noted (symbol text primary key, note text, more jsonb, fetched_at timestamptz)',
    ]);
    const note = `a\0b${half}c 🪙 \\u0000`;
    scene.provider.json('/quote/A', { symbol: 'A', note, more: { ['k\0']: [half, { deep: '\0' }], fine: 'ü' } });
    scene.provider.json('/quote/B', { symbol: 'B', note: 'plain', more: {} });
    expect((await scene.refresh(['A', 'B'])).map(({ outcome }) => outcome)).toEqual(['fresh', 'fresh']);
    expect(await scene.rows('noted', 'symbol, note, more')).toEqual([
      {
        symbol: 'A',
        note: 'a\uFFFDb\uFFFDc 🪙 \\u0000',
        more: { ['k\uFFFD']: ['\uFFFD', { deep: '\uFFFD' }], fine: 'ü' },
      },
      { symbol: 'B', note: 'plain', more: {} },
    ]);
  });

  it.each([
    ['the name of a column', { symbol: 'A', ['na\0me']: 1 }, 'the table has no column na\uFFFDme'],
    ['a value that is quoted', { symbol: `A${half}\0` }, `symbol is "A\\ud83d\\u0000", expected "A" for the key A`],
  ])('in a refusal is recorded, and its call is booked: %s', async (_, row, error) => {
    const scene = await RefreshScene.open([
      quoteType({ sourceTimestamp: undefined, sanity: undefined, rows: () => row }),
    ]);
    scene.quote('A', 1);
    scene.quote('B', 1);
    const [ended] = await scene.refresh(['A']);
    expect(ended!.cost.calls).toBe(1);
    const said = `select coalesce((select error from pgfresh_engine.history_other), (select error from pgfresh_engine.job))`;
    expect(await scene.value(said)).toBe(error);
    expect(await scene.value(`select sum(calls)::int from pgfresh_engine.usage`)).toBe(1);
  });

  it('is replaced on its way to every statement, alone and within a transaction', async () => {
    const scene = await RefreshScene.open();
    const echo = 'select $1::text as text, $2::text[] as list, $3::jsonb as json';
    const bad = [`a\0${half}`, ['b\0', half], { ['c\0']: half }];
    const good = [{ text: 'a\uFFFD\uFFFD', list: ['b\uFFFD', '\uFFFD'], json: { 'c\uFFFD': '\uFFFD' } }];
    expect(await scene.db.query(echo, bad)).toEqual(good);
    expect(await scene.db.transact('echo', (tx) => tx.query(echo, bad))).toEqual(good);
  });

  it('of arrays comes as it was sent, whatever is in it', async () => {
    const scene = await RefreshScene.open();
    const texts = ['', ' ', 'a,b', '{}', '"', '\\', '\\"\n', 'NULL', null, 'ü'];
    const lists = [
      ['a"', null],
      ['\\', 'b'],
    ];
    const numbers = [1, -2.5, null, 1e21];
    const echo = 'select $1::text[] as texts, $2::float8[] as numbers, $3::text[] as none, $4::text[] as lists';
    expect(await scene.db.query(echo, [texts, numbers, [], lists])).toEqual([{ texts, numbers, none: [], lists }]);
  });

  it('costs nothing to look for where there is none', () => {
    const text = 'plain text';
    expect(storableText(text)).toBe(text);
    expect(storableJson({ a: ['ü', 1, null] })).toBe('{"a":["ü",1,null]}');
    // An escaped backslash is none of it.
    expect(storableJson(['\\u0000', '\\ud800'])).toBe(JSON.stringify(['\\u0000', '\\ud800']));
  });

  it('is replaced in every kind of parameter, and nothing else is touched', () => {
    const date = new Date(0);
    const bytes = Buffer.from('\0');
    const values = ['a\0', ['b\0', null, [half]], { ['c\0']: half }, date, bytes, 1, 1n, true, null, undefined];
    expect(values.map(storableValue)).toEqual([
      'a\uFFFD',
      ['b\uFFFD', null, ['\uFFFD']],
      '{"c\uFFFD":"\uFFFD"}',
      date,
      bytes,
      1,
      1n,
      true,
      null,
      undefined,
    ]);
  });
});
