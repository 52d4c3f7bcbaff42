import { beforeAll, expect, it } from 'vitest';
import type { refreshFunctions } from '../harness/called-functions.ts';
import { expectNoChange } from '../harness/refusal.ts';
import { RefreshScene } from './scene.ts';
import { inSchema } from '../harness/schemas.ts';

const argument = 'PGF_ARGUMENT_INVALID';

/** Arguments that make no sense, and by which code each is refused. `:type` is a data type that is there. */
const cases: Record<(typeof refreshFunctions)[number], readonly (readonly [string, string])[]> = {
  fence_jobs: [
    [`null, '{1}', '{1}', '{A}'`, argument],
    [`:type, null, '{1}', '{A}'`, argument],
    [`:type, '{1}', null, '{A}'`, argument],
    [`:type, '{1}', '{1}', null`, argument],
    [`:type, '{1,2}', '{1}', '{A,B}'`, argument],
    [`:type, '{1}', '{1}', '{A,B}'`, argument],
    [`:type, '{1}', '{1}', '{NULL}'`, argument],
    [`:type, '{0}', '{1}', '{A}'`, argument],
    [`:type, '{1}', '{-1}', '{A}'`, argument],
    [`:type, '{1}', '{1}', '{A}', '{}'`, argument],
    [`:type, '{1}', '{1}', '{A}', '{NULL}'`, argument],
  ],
  release_claim: [
    [`null, gen_random_uuid()`, argument],
    [`1, null`, argument],
  ],
  keep_refused_answer: [
    [`null, 'A', 1, 'schema', 'no', 200, 'x', 1, ''`, argument],
    [`:type, null, 1, 'schema', 'no', 200, 'x', 1, ''`, argument],
    [`:type, 'A', 1, 'schema', null, 200, 'x', 1, ''`, argument],
    [`:type, 'A', 1, 'Not A Word', 'no', 200, 'x', 1, ''`, argument],
    [`:type, 'A', 1, 'schema', 'no', 200, 'x', -1, ''`, argument],
    [`:type, 'A', 1, 'schema', 'no', 200, 'x', null, ''`, argument],
    [`:type, 'A', 1, 'schema', 'no', 200, 'x', 1, null`, argument],
    [`:type, '', 1, 'schema', 'no', 200, 'x', 1, ''`, 'PGF_KEY_INVALID'],
    [`-1, 'A', 1, 'schema', 'no', 200, 'x', 1, ''`, 'PGF_TYPE_UNKNOWN'],
  ],
};

let scene: RefreshScene;
let type = 0;
beforeAll(async () => {
  scene = await RefreshScene.open();
  type = (await scene.type()).id;
});

const all = Object.entries(cases).flatMap(([name, list]) => list.map(([given, code]) => [name, given, code] as const));

it.each(all)('%s(%s) is refused', async (name, given, code) => {
  const statement = `select ${inSchema(name)}(${given.replaceAll(':type', String(type))})`;
  await expectNoChange(scene.db, async () => {
    await expect(scene.db.query(statement)).rejects.toMatchObject({ code });
  });
});

it('keeps the newest refused answers of a type only', async () => {
  const keep = (size: number) =>
    scene.db.query(
      `select pgfresh_engine.keep_refused_answer($1, 'A', 1, 'schema', 'no', 200, 'text/plain', $2::int, convert_to(repeat('x', $2::int), 'utf8'))`,
      [type, size],
    );
  const kept = () =>
    scene.db.query(
      `select count(*)::int as answers, sum(length(body))::int as bytes, max(length(body)) as longest from pgfresh_engine.refused_answer`,
    );
  for (let n = 0; n < 60; n++) await keep(10);
  expect(await kept()).toEqual([{ answers: 50, bytes: 500, longest: 10 }]);
  for (let n = 0; n < 20; n++) await keep(100_000);
  expect(await kept()).toEqual([{ answers: 16, bytes: 16 * 65_536, longest: 65_536 }]);
});
