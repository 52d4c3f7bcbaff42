import { readFile } from 'node:fs/promises';
import { expect, test } from 'vitest';
import { reasons } from '../../src/planner/index.ts';
import { playSession } from '../harness/sql-session.ts';

test('docs/planner.md has every reason', async () => {
  const page = await readFile('docs/planner.md', 'utf8');
  const section = page.slice(page.indexOf('## Why is this not fresh?'), page.indexOf('## What it leaves behind'));
  const rows = [...section.matchAll(/^\| `(\w+)` \| (.+) \|$/gm)].map(([, reason, words]) => [reason, words]);
  expect(Object.fromEntries(rows)).toEqual(reasons);
});

test('docs/demand.md shows a session that answers as it says', async () => {
  expect(await playSession(await readFile('docs/demand.md', 'utf8'))).toBeGreaterThan(10);
});
