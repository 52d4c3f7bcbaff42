import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { campaigns } from './index.ts';

const script = fileURLToPath(new URL('../../scripts/campaign.ts', import.meta.url));

function campaign(...words: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [script, ...words], { encoding: 'utf8' });
  return { status, stdout, stderr };
}

describe('npm run campaign', () => {
  it('lists all campaigns, also where one is named', () => {
    for (const words of [['--help'], ['gauntlet', '-h']]) {
      const { status, stdout } = campaign(...words);
      expect(status).toBe(0);
      for (const name of Object.keys(campaigns)) expect(stdout).toContain(`\n  ${name} `);
    }
  });

  it.each([
    [[], 'Expected the name of a campaign.'],
    [['gantlet'], 'There is no campaign "gantlet". The known ones: transactions,'],
    [['gauntlet', 'storm'], 'Expected one campaign, got also storm.'],
    [['gauntlet', '--minutes', '1'], '--minutes must be a number of at least 3, got "1".'],
    [['gauntlet', '--seed', 'x'], '--seed must be a number of at least 0, got "x".'],
    [['queue', '--minutes', '3'], 'queue goes by --steps, not by --minutes.'],
    [['queue', '--sead', '3'], "Unknown option '--sead'"],
  ])('refuses %j with exit code 2', (words, problem) => {
    const { status, stdout, stderr } = campaign(...words);
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
    expect(stderr).toContain(problem);
    expect(stderr).toContain('npm run campaign -- --help');
  });
});
