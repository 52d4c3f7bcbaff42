import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Fresh } from 'pgfresh/client';
import { activities, dataStates, reasons } from '../../src/planner/index.ts';
import { countedStates } from '../../src/watch/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { numbersTestedIn } from './frame.ts';

const root = join(import.meta.dirname, '../..');

const page = readFileSync(join(root, 'docs/reference/states.md'), 'utf8');

/** A table of the page, by the head of its first column. */
function tableOf(head: string): Record<string, string> {
  const [, body] = new RegExp(`^\\| ${head} \\|.*\\n\\|---.*\\n((?:\\|.*\\n)+)`, 'm').exec(page)!;
  return Object.fromEntries([...body!.matchAll(/^\| `(\w+)` \| (.*) \|$/gm)].map(([, word, means]) => [word, means]));
}

test('the tables of docs/reference/states.md have the words of the code', () => {
  expect(tableOf('state')).toEqual(dataStates);
  expect(countedStates).toEqual(Object.keys(dataStates));
  expect(tableOf('activity')).toEqual(activities);
  expect(tableOf('reason')).toEqual(reasons);
  const statuses: Record<Fresh['status'], true> = { ready: true, empty: true, loading: true, error: true };
  expect(Object.keys(tableOf('`status`')).toSorted()).toEqual(Object.keys(statuses).toSorted());
});

test('the words of the code are those of SQL', async () => {
  const db = openDatabase(await createDatabase());
  const wordsOf = async (name: string): Promise<Set<string>> => {
    const [row] = await db.query<{ source: string }>(
      `select prosrc as source from pg_proc where pronamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace) and proname = $1::text`,
      [name],
    );
    const code = row!.source.replaceAll(/--.*$/gm, '');
    return new Set([...code.matchAll(/(?:then|else|, )\s*'(\w+)'/g)].map(([, word]) => word!));
  };
  expect([...(await wordsOf('state_of'))].toSorted()).toEqual(Object.keys(dataStates).toSorted());
  const known = new Set([...Object.keys(activities), ...Object.keys(reasons), ...Object.keys(dataStates)]);
  const said = await wordsOf('activity_of');
  expect([...said].filter((word) => !known.has(word))).toEqual([]);
  expect([...said]).toEqual(expect.arrayContaining(Object.keys(activities)));
});

test.each([
  { name: 'truth', count: 26 },
  { name: 'sound', count: 16 },
  { name: 'runs', count: 11 },
] as const)('every guarantee of docs/internals/guarantees.md called $name has a test', ({ name, count }) => {
  const sections = readFileSync(join(root, 'docs/internals/guarantees.md'), 'utf8').split(/^## /m);
  const section = sections.find((text) => text.includes(`Titles begin with \`${name}\``))!;
  const promised = [...section.matchAll(/^(\d+)\. [A-Z`].*\.$/gm)].map(([, number]) => number!);
  expect(promised).toEqual(Array.from({ length: count }, (_, index) => String(index + 1)));
  const tested = new Set(
    globSync('test/**/*.test.ts', { cwd: root }).flatMap((file) =>
      numbersTestedIn(readFileSync(join(root, file), 'utf8'), name),
    ),
  );
  expect(promised.filter((number) => !tested.has(number))).toEqual([]);
  expect([...tested].filter((number) => !promised.includes(number))).toEqual([]);
});
