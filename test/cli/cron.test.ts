import { describe, expect, it } from 'vitest';
import type { CronExplanation } from '../../src/schedule/index.ts';
import { runCommand } from '../harness/command-line.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { runCli } from '../harness/process.ts';

// No database: this address would be refused.
const env = { DATABASE_URL: 'postgres://127.0.0.1:1/none', TZ: 'Asia/Kathmandu' };
const pgfresh = (...args: string[]) => runCommand(['cron', ...args], { env });

const newYork = ['--zone', 'America/New_York', '--from', '2026-03-07T12:00:00Z'];

describe('pgfresh cron next', () => {
  it('prints instants, as lines and as a JSON array', async () => {
    const args = ['cron', 'next', '30 2 * * *', ...newYork, '--count', '2', '--json'];
    const { code, stdout } = await runCli(args, { cwd: await temporaryFolder('cron'), env });
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toEqual(['2026-03-08T07:00:00Z', '2026-03-09T06:30:00Z']);
    const { stdout: text } = await pgfresh('next', '30 2 * * *', ...newYork, '--count', '2');
    expect(text).toBe('2026-03-08T07:00:00Z\n2026-03-09T06:30:00Z\n');
  });

  it('prints five from now on in UTC when nothing else is said', async () => {
    const slots = JSON.parse((await pgfresh('next', '@daily', '--json')).stdout) as string[];
    expect(slots).toHaveLength(5);
    expect(slots[0]).toMatch(/T00:00:00Z$/);
    expect(Date.parse(slots[0]!) - Date.now()).toBeGreaterThan(0);
    expect(Date.parse(slots[0]!) - Date.now()).toBeLessThanOrEqual(86_400_000);
  });

  it('says so when there is none', async () => {
    expect(await pgfresh('next', '0 0 30 2 *', '--json')).toMatchObject({ code: 0, stdout: '[]\n' });
    expect((await pgfresh('next', '0 0 30 2 *')).stdout).toMatch(/^It never runs/);
  });

  it('refuses what makes no sense, and says what to do', async () => {
    const cases: [args: string[], message: RegExp][] = [
      [['next', '0 0 0 * * *'], /PGF_CRON_INVALID .*got 6; .*did you mean "0 0 \* \* \*"\?/],
      [['next', '@daily', '--zone', 'Europe/Londn'], /PGF_ZONE_UNKNOWN .*did you mean "Europe\/London"\?/],
      [['explain', '@daily', '--zone', ''], /PGF_ZONE_UNKNOWN There is no time zone ""/],
      [['next', '@daily', '--from', '2026-03-07T12:00:00'], /PGF_USAGE .*expected a time in UTC or with its offset/],
      [['next', '@daily', '--count', '1e9'], /expected a number from 1 to 1000/],
      [['next', '*', '*', '*', '*', '*'], /PGF_USAGE too many arguments/],
      [['nxt', '@daily'], /unknown command 'nxt' \(Did you mean next\?\)/],
    ];
    for (const [args, message] of cases) {
      const { code, stdout, stderr } = await pgfresh(...args);
      expect([args, code, stdout]).toEqual([args, 2, '']);
      expect(stderr).toMatch(message);
      expect(stderr).toMatch(/\nNext: /);
    }
  });

  it('refuses in JSON, too', async () => {
    const { code, stdout } = await pgfresh('next', '@reboot', '--json');
    expect([code, JSON.parse(stdout)]).toMatchObject([2, { error: { code: 'PGF_CRON_INVALID' } }]);
  });
});

describe('pgfresh cron explain', () => {
  it('says it in words, with the next runs and what clocks do', async () => {
    const { code, stdout } = await pgfresh('explain', '30 2 * * *', ...newYork, '--count', '1');
    expect(code).toBe(0);
    expect(stdout).toBe(`30 2 * * * in America/New_York: at 02:30 every day.

Next runs
  2026-03-08T07:00:00Z  Sun 2026-03-08 03:00 GMT-4

Changes of the clocks in the next 400 days that concern it
  2026-03-08T07:00:00Z  Clocks go from 02:00 to 03:00. 02:30 does not exist; it runs once at 03:00 instead.
  2027-03-14T07:00:00Z  Clocks go from 02:00 to 03:00. 02:30 does not exist; it runs once at 03:00 instead.
`);
  });

  it('says the same as JSON', async () => {
    const { stdout } = await pgfresh('explain', '*/30 1 * * *', ...newYork, '--json');
    expect(JSON.parse(stdout)).toMatchObject({
      words: 'every 30 minutes from 01:00 to 01:59 every day',
      kind: 'interval',
      next: { length: 5 },
      surprises: [{ at: '2026-11-01T06:00:00Z', change: 'overlap', times: ['01:00', '01:30'], effect: 'twice' }],
    } satisfies Partial<Record<keyof CronExplanation, unknown>>);
  });
});
