import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { numbersTestedIn } from './frame.ts';

const root = join(import.meta.dirname, '../..');

/** The promises of docs/truth.md that have no test yet. This list only shrinks. */
const pending: readonly string[] = Array.from({ length: 26 }, (_, index) => String(index + 1));

test('every promise of docs/truth.md has a test that is named after it', () => {
  const page = readFileSync(join(root, 'docs/truth.md'), 'utf8');
  const promised = [...page.matchAll(/^(\d+)\. [A-Z`].*\.$/gm)].map(([, number]) => number!);
  expect(promised).toEqual(Array.from({ length: 26 }, (_, index) => String(index + 1)));
  const tested = new Set(
    globSync('test/**/*.test.ts', { cwd: root }).flatMap((file) =>
      numbersTestedIn(readFileSync(join(root, file), 'utf8'), 'truth'),
    ),
  );
  expect(promised.filter((number) => !tested.has(number) && !pending.includes(number))).toEqual([]);
  expect([...tested].filter((number) => !promised.includes(number))).toEqual([]);
});
