import { beforeAll, expect, it } from 'vitest';
import type { changeFunctions } from '../harness/called-functions.ts';
import { expectNoChange } from '../harness/refusal.ts';
import { RegistryScene } from '../registry/scene.ts';
import { inSchema } from '../harness/schemas.ts';

const argument = 'PGF_ARGUMENT_INVALID';
const type = 'PGF_TYPE_UNKNOWN';
const role = 'PGF_LIVE_ROLE';
const notOfThatType = '22P02';

/** Invalid arguments, with the code of their error. `:type` is an existing data type, `:hidden` one with row security. */
const cases: Record<(typeof changeFunctions)[number], readonly (readonly [string, string])[]> = {
  want_pairs: [
    [`'{quote}', '{A}', null`, argument],
    [`'{quote', '{A}'`, notOfThatType],
    [`null, '{A}'`, argument],
    [`'{quote}', null`, argument],
    [`'{quote}', '{A,B}'`, argument],
    [`array_fill('quote'::text, array[10001]), array_fill('A'::text, array[10001])`, argument],
  ],
  watch_changes: [
    ['null', argument],
    [`'{NULL}'`, argument],
    ['array_fill(1, array[10001])', argument],
    [`'{x}'`, notOfThatType],
    [`'{}', 'x'`, notOfThatType],
    [`'{}', '5:4:'`, notOfThatType],
    [`'{}', ''`, notOfThatType],
  ],
  read_pairs: [
    [`null, '{A}'`, type],
    [`0, '{A}'`, type],
    [`-1, '{A}'`, type],
    [`:type, null`, argument],
    [`:type, '{NULL}'`, argument],
    [`:type, array_fill('A'::text, array[10001])`, argument],
    [`:hidden, '{A}'`, argument],
  ],
  read_pairs_as: [
    [`'pgfresh_viewer', 'ada', '{}', null, '{A}'`, type],
    [`'pgfresh_viewer', 'ada', '{}', 0, '{A}'`, type],
    [`'pgfresh_viewer', 'ada', '{}', :hidden, null`, argument],
    [`'pgfresh_viewer', 'ada', '{}', :hidden, '{NULL}'`, argument],
    [`'pgfresh_viewer', 'ada', '{}', :hidden, array_fill('A'::text, array[10001])`, argument],
    [`'pgfresh_viewer', 'ada', '{}', :type, '{A}'`, argument],
    [`'pgfresh_viewer', null, '{}', :hidden, '{A}'`, argument],
    [`'pgfresh_viewer', 'ada', null, :hidden, '{A}'`, argument],
    [`'pgfresh_viewer', 'ada', '[]', :hidden, '{A}'`, argument],
    [`'pgfresh_viewer', 'ada', '{', :hidden, '{A}'`, notOfThatType],
    [`null, 'ada', '{}', :hidden, '{A}'`, role],
    [`'no role', 'ada', '{}', :hidden, '{A}'`, role],
    [`'pgfresh_worker', 'ada', '{}', :hidden, '{A}'`, role],
    [`current_user::text, 'ada', '{}', :hidden, '{A}'`, role],
  ],
  admit_viewer_role: [
    ['null', role],
    [`''`, role],
    [`'pgfresh_worker'`, role],
    [`repeat('x', 10000)`, role],
    [`E'a\nb'`, role],
    ['current_user::text', role],
  ],
  viewer_role_problem: [['1', '42883']],
  pump_changes: [
    ['null', argument],
    [`'me'`, notOfThatType],
    [`gen_random_uuid(), 'x'`, notOfThatType],
  ],
  settle_changes: [
    [`'x', null`, notOfThatType],
    [`null, 'x'`, notOfThatType],
    [`null, null, null`, argument],
    [`null, null, '{NULL}'`, argument],
    [`null, null, array_fill(1, array[10001])`, argument],
    [`null, null, '{}', null, '{}'`, argument],
    [`null, null, '{}', '{}', null`, argument],
    [`null, null, '{}', '{1}', '{}'`, argument],
    [`null, null, '{}', array_fill(1, array[10001]), array_fill(now(), array[10001])`, argument],
  ],
  clear_unwatched_changes: [['1', '42883']],
};

let scene: RegistryScene;
let quote = 0;
let hidden = 0;
beforeAll(async () => {
  scene = await RegistryScene.open();
  quote = await scene.add('quote', { key_pattern: '^[A-Z]+$' });
  hidden = await scene.add('hidden', { visibility: 'rls' });
  await scene.db.query('select pgfresh_engine.watch_changes($1::int[])', [[quote]]);
  await scene.db.query(`insert into mirror values ('A', now())`);
});

const all = Object.entries(cases).flatMap(([name, list]) => list.map(([given, code]) => [name, given, code] as const));

it.each(all)('%s(%s) is refused', async (name, given, code) => {
  const statement = `select ${inSchema(name)}(${given.replaceAll(':type', String(quote)).replaceAll(':hidden', String(hidden))})`;
  await expectNoChange(scene.db, async () => {
    await expect(scene.db.query(statement)).rejects.toMatchObject({ code });
  });
});

const wanted = [
  ['quote', 'A'],
  ['quote', 'lower case'],
  ['quote', null],
  ['quote', ''],
  ['quote', 'x'.repeat(10_240)],
  ['quote', 'A\nB'],
  ['qoute', 'A'],
  [null, 'A'],
  ['quote', `'; drop schema pgfresh cascade; --`],
  ['hidden', 'B'],
];

it('refuses pairs that cannot exist, each with a reason, and admits the others', async () => {
  await expectNoChange(scene.db, async () => {
    const rows = await scene.db.query<{ code: string | null; key: string | null; problem: string | null }>(
      'select key, code, problem from pgfresh_engine.want_pairs($1::text[], $2::text[]) order by place',
      [wanted.map(([name]) => name), wanted.map(([, key]) => key)],
    );
    expect(rows.map(({ key, code }) => key ?? code)).toEqual([
      'A',
      'PGF_KEY_UNKNOWN',
      'PGF_KEY_INVALID',
      'PGF_KEY_INVALID',
      'PGF_KEY_INVALID',
      'PGF_KEY_INVALID',
      'PGF_TYPE_UNKNOWN',
      'PGF_TYPE_UNKNOWN',
      'PGF_KEY_UNKNOWN',
      'B',
    ]);
    for (const { problem } of rows) expect(problem ?? '').toMatch(/^[^\n]{0,300}$/);
  });
});

it('plans only pairs that can exist, and counts no viewer for a node without a lease', async () => {
  const rows = await scene.db.query<{ key: string | null; counted: boolean | null }>(
    'select key, counted from pgfresh_engine.want_pairs($1::text[], $2::text[], true, 0) order by place',
    [wanted.map(([name]) => name), wanted.map(([, key]) => key)],
  );
  expect(rows.flatMap(({ key, counted }) => (key === null ? [] : [[key, counted]]))).toEqual([
    ['A', false],
    ['B', false],
  ]);
  expect(await scene.value('array(select key from pgfresh_engine.pairs where demanded order by key)')).toEqual([
    'A',
    'B',
  ]);
});
