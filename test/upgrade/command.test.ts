import { tmpdir } from 'node:os';
import { beforeAll, expect, it } from 'vitest';
import { runCli } from '../harness/process.ts';
import { createReleased } from './released-database.ts';

let url = '';
beforeAll(async () => {
  ({ url } = await createReleased('0.1.0'));
});

const pgfresh = (...args: string[]) => runCli(args, { cwd: tmpdir(), env: { DATABASE_URL: url } });

it('migrate says what it does to objects, and whose it leaves alone, before and after', async () => {
  const preview = await pgfresh('migrate', '--dry-run');
  expect(preview.code).toBe(0);
  for (const line of [
    'Would apply migration/032_two_schemas',
    'Would drop function pgfresh.stop_spending(text)',
    'Would create table pgfresh_engine.manifest',
    'Left alone: function pgfresh.my_rule(integer), which is not of pgfresh',
    'Numbered files are not tried: what they move is listed as dropped and created.',
  ])
    expect(preview.stdout.split('\n')).toContain(line);
  const { stdout } = await pgfresh('migrate');
  expect(stdout.split('\n')).toContain('Dropped function pgfresh.stop_spending(text)');
  expect(stdout.split('\n')).toContain('Left alone: table pgfresh.my_notes, which is not of pgfresh');
  expect((await pgfresh('migrate', '--dry-run')).stdout).toBe('Nothing to do: the database is up to date.\n');
});
