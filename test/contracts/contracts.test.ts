import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { breaks, broken } from './breaks.ts';
import { contractNumbers, contractsTestedIn, frameProblems } from './frame.ts';
import { pending } from './pending.ts';

const root = join(import.meta.dirname, '../..');

test('every contract has a test or a place in the pending list, and none has both', () => {
  const files = globSync('*.test.ts', { cwd: import.meta.dirname });
  const tested = files.flatMap((file) => contractsTestedIn(readFileSync(join(import.meta.dirname, file), 'utf8')));
  expect(frameProblems(tested, pending)).toEqual([]);
});

test('truth 23: of every contract with a test there are two ways to break it, and each still has its place in the code', () => {
  const lost = breaks.filter((one) => broken(readFileSync(join(root, one.file), 'utf8'), one) === undefined);
  expect(lost.map(({ contract, harm }) => `contract ${contract}: ${harm}`)).toEqual([]);
  const counts = Map.groupBy(breaks, ({ contract }) => contract);
  const ours = contractNumbers.slice(0, contractNumbers.indexOf('23'));
  const few = ours.filter((number) => (counts.get(number)?.length ?? 0) < 2 && !Object.hasOwn(pending, number));
  expect(few).toEqual([]);
});

test('the pull request template asks about every contract, in order', () => {
  const template = readFileSync(join(root, '.github/pull_request_template.md'), 'utf8');
  const asked = [...template.matchAll(/^- \[ \] (\d+a?): .+\?$/gm)].map((line) => line[1]);
  expect(asked).toEqual(contractNumbers);
});

describe('the frame', () => {
  const allPending = Object.fromEntries(contractNumbers.map((number) => [number, 'later']));
  const { '14': _, ...without14 } = allPending;

  test('knows 1 to 34 and 6a', () => {
    expect(contractNumbers).toHaveLength(35);
    expect(contractNumbers.slice(4, 9)).toEqual(['5', '6', '6a', '7', '8']);
    expect(contractNumbers.at(-1)).toBe('34');
  });

  test('is content when each number is in one of the two places', () => {
    expect(frameProblems([], allPending)).toEqual([]);
    expect(frameProblems(['14', '14'], without14)).toEqual([]);
  });

  test('names a number that is in neither', () => {
    expect(frameProblems([], without14)).toEqual([
      'contract 14 has no test in test/contracts and is not in pending.ts',
    ]);
  });

  test('names a number that is in both', () => {
    expect(frameProblems(['14'], allPending)).toEqual([
      'contract 14 has a test and is still in pending.ts: take it out there',
    ]);
  });

  test('names a number that does not exist', () => {
    expect(frameProblems(['35'], { ...allPending, '1b': 'later' })).toEqual([
      'there is no contract 35',
      'there is no contract 1b',
    ]);
  });
});

describe('the finder of test titles', () => {
  test.each([
    ["test('contract 14: old data stays old', () => {});", ['14']],
    ['it("contract 06a: the ledger is the bill", () => {});', ['6a']],
    ['test(`contract 01: one claimer`, () => {});', ['1']],
    ["test.concurrent(\n  'contract 2: no deadlock',\n  () => {},\n);", ['2']],
    ["test.each([0, f(-1), ')'])('contract 13: a TTL of %i is refused', () => {});", ['13']],
    ["test.for<[string, number]>([['a', 1]])('contract 5: %s', () => {});", ['5']],
    ["test('contract 3: a', () => {});\ntest('contract 4: b', () => {});", ['3', '4']],
  ])('sees %j', (text, numbers) => {
    expect(contractsTestedIn(text)).toEqual(numbers);
  });

  test.each([
    "// test('contract 14: old data stays old', () => {});",
    "/* test('contract 14: old data stays old', () => {}); */",
    "test.skip('contract 14: old data stays old', () => {});",
    "test.todo('contract 14: old data stays old');",
    "test.skip.each([1])('contract 14: old data stays old', () => {});",
    "describe('contract 14: old data stays old', () => {});",
    "describe.each([1])('contract 14: old data stays old', () => {});",
    "test('old data stays old, contract 14: really', () => {});",
    "test('contract 14', () => {});",
    'const planted = "test(\'contract 14: old data stays old\')";',
  ])('does not see %j', (text) => {
    expect(contractsTestedIn(text)).toEqual([]);
  });
});
