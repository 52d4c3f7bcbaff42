import { expect, it } from 'vitest';
import { parseFailpoints } from '../../src/lifecycle/failpoint.ts';

it('arms what is named, and nothing where nothing is', () => {
  expect(parseFailpoints(undefined)).toEqual(new Map());
  expect(parseFailpoints('migrate.before-commit=kill,embedded.before-ready=hang')).toEqual(
    new Map([
      ['migrate.before-commit', 'kill'],
      ['embedded.before-ready', 'hang'],
    ]),
  );
});

it.each([
  [
    'migrate.before-comit=kill',
    /expected one of migrate\.before-commit, embedded\.before-ready, .*, got "migrate\.before-comit"/,
  ],
  ['migrate.before-commit=kil', 'expected one of kill, throw, hang, got "kil"'],
  ['migrate.before-commit', 'got "undefined"'],
])('refuses %s', (text, message) => {
  expect(() => parseFailpoints(text)).toThrow(message);
});
