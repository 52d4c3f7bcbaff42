import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const sql = join(import.meta.dirname, '../../sql');
const files = readdirSync(sql, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.sql'));

// As long as the formatter lets those of TypeScript be.
test.for(files)('%s has no line of more than 120 characters', (file) => {
  const lines = readFileSync(join(sql, file), 'utf8').split('\n');
  expect(lines.flatMap((line, place) => (line.length > 120 ? [`${place + 1}: ${line.length}`] : []))).toEqual([]);
});

// In a session with standard_conforming_strings = off, a backslash in a plain literal escapes the next character.
test.for(files.filter((file) => !file.startsWith('migrations')))('%s has backslashes in E literals only', (file) => {
  const lines = readFileSync(join(sql, file), 'utf8').split('\n');
  expect(lines.filter((line) => line.replaceAll(/\bE'[^']*'/g, '').includes('\\'))).toEqual([]);
});
