import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { warnings } from '../../src/events/index.ts';

const root = join(import.meta.dirname, '../..');
const read = (file: string): string => readFileSync(join(root, file), 'utf8');
const codesOf = (text: string, pattern: RegExp): string[] => [
  ...new Set([...text.matchAll(pattern)].map(([, code]) => code!)),
];

const known = Object.keys(warnings);

test('truth 26: every warning is explained by docs/reference/errors.md, and nothing else is', () => {
  const page = read('docs/reference/errors.md');
  const section = page.slice(page.indexOf('## Warnings'), page.indexOf('## Outcomes'));
  expect(codesOf(section, /^\| `(\w+)` \| [A-Z`]/gm)).toEqual(known);
});

test('truth 26: every warning of SQL is one that code knows', () => {
  const sql = globSync('sql/{api,engine}/**/*.sql', { cwd: root }).map(read).join('\n');
  const warned = codesOf(sql, /pgfresh_engine\.warn\(\s*'(\w+)'/g);
  expect(warned.length).toBeGreaterThan(8);
  expect(warned.filter((code) => !known.includes(code))).toEqual([]);
});
