import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';
import { skeletonOf } from '../../scripts/code-skeleton.ts';

const project = dirname(dirname(import.meta.dirname));

/** An expression in parentheses, which is not a call, and a private member of it. */
const lost = /(?<![\w$)\]>.])\s*\((?:[^()]|\([^()]*\))*\)\s*\??\.#/;

test('no code that the formatter breaks: up to 0.75 it makes a ?? b.#c of (a ?? b).#c', () => {
  expect('return (this.meant ?? this).#fresh;').toMatch(lost);
  expect('return this.meant().#fresh;').not.toMatch(lost);
  const files = globSync('{src,client,scripts,test,examples,bench}/**/*.{ts,tsx}', { cwd: project });
  expect(files.filter((path) => lost.test(skeletonOf(readFileSync(join(project, path), 'utf8'))))).toEqual([]);
});
