import { rm } from 'node:fs/promises';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { Redraw } from '../../src/cli/redraw.ts';
import type { Overview } from '../../src/watch/index.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { CliProcess, runCli, type CliOptions } from '../harness/process.ts';
import { QueueScene } from '../queue/scene.ts';

let scene: QueueScene;
let cwd = '';
beforeAll(async () => {
  scene = await QueueScene.open();
  await scene.source('paid', { rate: 300, quotaBytes: 1_000_000 });
  await scene.type('page', 'paid');
  await scene.db.query(`select pgfresh.upsert_active_subscription('ann', 'A', 'page')`);
  await scene.db.query('select pgfresh.plan_due_pairs(100)');
  cwd = await temporaryFolder('top');
});

const cli = () => ({ cwd, env: { DATABASE_URL: scene.url } });
/** The same for a process whose output is a small terminal. */
const onTerminal = ({ env, ...rest }: Required<Pick<CliOptions, 'cwd' | 'env'>>): CliOptions => {
  const terminal = 'data:text/javascript,process.stdout.isTTY=true;process.stdout.columns=40;process.stdout.rows=8';
  return { ...rest, env: { ...env, NODE_OPTIONS: `--import=${terminal}`, NO_COLOR: '1' } };
};
const top = (...args: string[]) => runCli(['top', ...args], cli());

describe('pgfresh top', () => {
  it('prints once where there is no terminal, and leaves the screen alone', async () => {
    const { code, stdout, stderr } = await top();
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).not.toContain('\x1b');
    expect(stdout).toMatch(/^pgfresh {2}\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ {2}1 worker, planner \d+ s ago$/m);
    expect(stdout).toMatch(/^0\.0 % fresh for 1 view of 1 pair \(0 fresh, 0 stale, 1 missing\)$/m);
    expect(stdout).toMatch(/^source +state +calls\/min +this hour +bytes +ready +waiting +running$/m);
    expect(stdout).toMatch(/^market +ok +no limit +0 calls, 0 B +no limit +0 +0 +0$/m);
    expect(stdout).toMatch(/^paid +ok +0 of 300 +0 calls, 0 B +0 B of 950 KB +1 +0 +0$/m);
    expect(stdout).toMatch(/^page +1 +1 +0\.0 % +1 +– +– +– +1 +0 +0$/m);
  });

  it('prints JSON', async () => {
    const { code, stdout } = await top('--json');
    expect(code).toBe(0);
    expect(JSON.parse(stdout) as Overview).toMatchObject({
      freshness: { pairs: 1, missing: 1 },
      types: [
        { data_type: 'page', source: 'paid', ready: 1 },
        { data_type: 'quote', pairs: 0 },
      ],
    });
  });

  it('says why a source is not called', async () => {
    await scene.db.query(`select pgfresh.pause_source('paid', pgfresh.clock() + interval '1 hour', 'maintenance')`);
    expect((await top('--once')).stdout).toMatch(
      /^paid is not called \(paused\) until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ: maintenance$/m,
    );
    await scene.db.query(`select pgfresh.resume_source('paid'), pgfresh.stop_spending('enough')`);
    expect((await top('--once')).stdout).toMatch(/^stopped: enough \("pgfresh resume-spending" lets it go on\)$/m);
    await scene.db.query('select pgfresh.resume_spending()');
  });

  it('draws again and again on a terminal, and ends cleanly on Ctrl-C', async () => {
    const child = new CliProcess(['top', '--interval', '100ms'], onTerminal(cli()));
    await child.printed(/\[H.*\[H.*\[H/s);
    await scene.db.query(`select pgfresh.stop_spending('enough of it')`);
    await child.printed(/stopped: enough/);
    child.signal('SIGINT');
    expect(await child.exit).toBe(0);
    expect([child.stdout.startsWith('\x1b[?25l'), child.stdout.endsWith('\x1b[?25h')]).toEqual([true, true]);
    await scene.db.query('select pgfresh.resume_spending()');
  });

  it('waits for whoever runs, without starting a database itself, and follows him to the next one', async () => {
    const folder = await temporaryFolder('top-embedded');
    onTestFinished(() => rm(folder, { recursive: true }));
    const options = { cwd: folder, env: { PGFRESH_PORT: '0', PGFRESH_LOG_LEVEL: 'silent' } };
    const child = new CliProcess(['top', '--interval', '100ms'], onTerminal(options));
    await child.printed(/Nothing runs in this folder/);
    for (const times of [1, 2]) {
      const dev = new CliProcess(['dev'], options);
      await child.printed(new RegExp(`(Nothing runs.*Nobody looks.*){${times}}`, 's'));
      dev.signal('SIGTERM');
      expect(await dev.exit).toBe(0);
      await child.printed(new RegExp(`(Nothing runs.*Nobody looks.*){${times}}Nothing runs`, 's'));
    }
    child.signal('SIGTERM');
    expect(await child.exit).toBe(0);
  }, 60_000);

  it('ends with the error of a database that was never there', async () => {
    const env = { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' };
    const child = new CliProcess(['top'], onTerminal({ cwd, env }));
    expect(await child.exit).toBe(4);
    expect(child.stdout).toMatch(/\[\?25h$/);
  });

  it('does not create the database to look at it', async () => {
    const folder = await temporaryFolder('top-uncreated');
    expect(await runCli(['top', '--log-level', 'silent'], { cwd: folder })).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^There is nothing to see yet\.\nNext: /) as string,
    });
    expect((await runCli(['top', '--json', '--log-level', 'silent'], { cwd: folder })).stdout).toBe('null\n');
  });

  it.each([
    [['--interval', 'soon'], /expected a positive time such as "30s"/],
    [['--interval', '10ms'], /expected 100ms or more/],
    [['--interval'], /argument missing/],
    [['now'], /too many arguments/],
    [['--onec'], /did you mean --once\?/i],
  ])('refuses %j', async (args, problem) => {
    const { code, stderr } = await top(...args);
    expect([code, stderr]).toEqual([2, expect.stringMatching(/^PGF_USAGE /)]);
    expect(stderr).toMatch(problem);
  });
});

describe('Redraw', () => {
  it('cuts what would wrap or scroll', () => {
    let written = '';
    const screen = new Redraw({ columns: 6, rows: 3, write: (text: string) => (written += text) });
    screen.draw('one\nabcdefgh\nthree');
    expect(written).toBe('\x1b[?25l\x1b[2J\x1b[Hone\x1b[K\nabcde…\x1b[K\n\x1b[J');
    written = '';
    screen.end();
    expect(written).toBe('\x1b[?25h');
  });
});
