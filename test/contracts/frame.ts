import { skeletonOf } from '../../scripts/code-skeleton.ts';

const oneTo34 = Array.from({ length: 34 }, (_, index) => String(index + 1));

/** The numbers of the contracts: 1 to 34, and 6a. */
export const contractNumbers: readonly string[] = [...oneTo34.slice(0, 6), '6a', ...oneTo34.slice(6)];

/** The contracts that a file tests: those named at the start of a test's title, as in `contract 06: …`. */
export function contractsTestedIn(text: string): string[] {
  return numbersTestedIn(text, 'contract');
}

/** The numbers at the start of a file's test titles, after this word; those of a promise may stand before a group of tests. */
export function numbersTestedIn(text: string, word: 'contract' | 'truth' | 'sound' | 'runs'): string[] {
  const skeleton = skeletonOf(text);
  const firstString = /\(\s*(['"`])(\.+)\1/g;
  return [...skeleton.matchAll(firstString)].flatMap((call) => {
    const title = text.slice(call.index, call.index + call[0].length).replace(/^\(\s*['"`]/, '');
    const number = new RegExp(`^${word} 0?(\\d+a?):`).exec(title)?.[1];
    return number !== undefined && isTest(skeleton.slice(0, call.index), callers[word]) ? [number] : [];
  });
}

/** What is wrong between the numbers, the tests that exist and the list of those to come. */
export function frameProblems(tested: readonly string[], pending: Readonly<Record<string, string>>): string[] {
  const known = contractNumbers.flatMap((number) => {
    const isTested = tested.includes(number);
    const isPending = Object.hasOwn(pending, number);
    if (isTested && isPending) return [`contract ${number} has a test and is still in pending.ts: take it out there`];
    if (!isTested && !isPending) return [`contract ${number} has no test in test/contracts and is not in pending.ts`];
    return [];
  });
  const unknown = [...new Set([...tested, ...Object.keys(pending)])].filter((name) => !contractNumbers.includes(name));
  return [...known, ...unknown.map((name) => `there is no contract ${name}`)];
}

const callers = {
  contract: 'test|it',
  truth: 'test|it|describe',
  sound: 'test|it|describe',
  runs: 'test|it|describe',
} as const;

/** Whether the code before an opening parenthesis makes it the call of a test that runs. */
function isTest(before: string, names: string): boolean {
  const head = before.trimEnd().endsWith(')') ? beforeLastCall(before.trimEnd()) : before;
  const modifiers = new RegExp(`\\b(?:${names})((?:\\.\\w+)*)(?:<[^()]*>)?\\s*$`).exec(head)?.[1];
  return modifiers !== undefined && !/\.(?:skip|todo|fails)\b/.test(modifiers);
}

/** `test.each([…])` without `([…])`. */
function beforeLastCall(code: string): string {
  let depth = 0;
  for (let place = code.length - 1; place >= 0; place--) {
    if (code[place] === ')') depth++;
    if (code[place] === '(') depth--;
    if (depth === 0) return code.slice(0, place);
  }
  return '';
}
