import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { generatedPages } from '../../scripts/docs.ts';
import { asPgfreshError, errorTable, PgfreshError, problemOf } from '../../src/errors/index.ts';

it('documents every code, and nothing that is no code', async () => {
  const page = await readFile('docs/reference/errors.md', 'utf8');
  const documented = [...page.matchAll(/^### (PGF_\w+)$/gm)].map((match) => match[1]);
  expect(documented).toEqual(Object.keys(errorTable));
});

it.each(Object.keys(generatedPages))('%s is what the code says', async (path) => {
  expect(await readFile(path, 'utf8')).toBe(generatedPages[path]!());
});

it.each(Object.entries(errorTable))(
  '%s reads like a sentence and names the next step',
  (code, { says, next, exit }) => {
    expect(code).toMatch(/^PGF_[A-Z_]+$/);
    expect(says).toMatch(/^([A-Z{]|pgfresh )/);
    expect(next).toMatch(/^[A-Z{].*\.$|: \{grant\}$/);
    expect(exit).toBeGreaterThan(0);
  },
);

it('fills in the values and keeps the cause', () => {
  const cause = new Error('root');
  const error = new PgfreshError('PGF_DATABASE_TOO_OLD', { address: 'db:5432/x', found: '14.1' }, { cause });
  expect(error.message).toBe('PostgreSQL at db:5432/x is version 14.1, and pgfresh needs 15 or newer.');
  expect(error.cause).toBe(cause);
  expect(JSON.parse(JSON.stringify(error))).toEqual({ code: error.code, message: error.message, next: error.next });
});

it('does not read a value as a template', () => {
  const error = new PgfreshError('PGF_CONFIG_INVALID', { file: '{problem}', problem: '$& {file}' });
  expect(error.message).toBe('{problem}: $& {file}');
});

it.each([
  [new Error('first\nsecond'), 'first'],
  [new AggregateError([new Error('inner')]), 'inner'],
  [new TypeError(), 'TypeError'],
  ['a text', 'a text'],
  [undefined, 'undefined'],
  ['', 'no message'],
])('tells what %o is about in one line', (thrown, problem) => {
  expect(problemOf(thrown)).toBe(problem);
  expect(asPgfreshError(thrown).code).toBe('PGF_UNEXPECTED');
});

const unreadable = () =>
  new Proxy(new Error('x'), {
    get: () => {
      throw new Error('not to be read');
    },
  });

// Made inside the test, because its title could not be written with them.
it.each([
  ['an object without a prototype', () => Object.create(null) as unknown, 'no message'],
  ['a message that is no text', () => Object.assign(new Error('x'), { message: {} }), '[object Object]'],
  ['a proxy that cannot be read', unreadable, 'no message'],
])('tells in one line what the code of users throws: %s', (_, make, problem) => {
  expect(problemOf(make())).toBe(problem);
});
