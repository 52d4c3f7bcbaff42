import { rm } from 'node:fs/promises';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { Redraw } from '../../src/cli/redraw.ts';
import type { Overview } from '../../src/watch/index.ts';
import { runCommand } from '../harness/command-line.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { CliProcess, type CliOptions } from '../harness/process.ts';
import { QueueScene } from '../queue/scene.ts';

let scene: QueueScene;
let cwd = '';
beforeAll(async () => {
  scene = await QueueScene.open();
  await scene.source('paid', { rate: 300, quotaBytes: 1_000_000 });
  await scene.type('page', 'paid');
  await scene.db.query(`select pgfresh.upsert_active_subscription('ann', 'A', 'page')`);
  await scene.db.query('select pgfresh_engine.plan_due_pairs(100)');
  cwd = await temporaryFolder('top');
});

const cli = () => ({ cwd, env: { DATABASE_URL: scene.url } });
/** The same for a process whose output is a small terminal. */
const onTerminal = ({ env, ...rest }: Required<Pick<CliOptions, 'cwd' | 'env'>>): CliOptions => {
  const terminal = 'data:text/javascript,process.stdout.isTTY=true;process.stdout.columns=40;process.stdout.rows=8';
  return { ...rest, env: { ...env, NODE_OPTIONS: `--import=${terminal}`, NO_COLOR: '1' } };
};
const top = (...args: string[]) => runCommand(['top', ...args], cli());

describe('pgfresh top', () => {
  it('prints once where there is no terminal, and leaves the screen alone', async () => {
    const { code, stdout, stderr } = await top();
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).not.toContain('\x1b');
    expect(stdout).toMatch(/^pgfresh {2}\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ {2}1 worker, planner last ran \d+ s ago$/m);
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
      /^paid is not called \(paused\) until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ: maintenance\. Next: "pgfresh source resume paid" lets it be called again\.$/m,
    );
    await scene.db.query(
      `select pgfresh.resume_source('paid'); insert into pgfresh.spending_stop (reason) values ('enough')`,
    );
    expect((await top('--once')).stdout).toMatch(/^stopped: enough \("pgfresh resume-spending" lets it go on\)$/m);
    await scene.db.query('delete from pgfresh.spending_stop');
  });

  it('truth 3: says first which data types are left alone, refused or unserved, why and until when', async () => {
    await scene.source('keyed', { apiKeys: 2 });
    for (const type of ['old', 'unserved', 'broken']) await scene.type(type, 'keyed');
    await scene.db.query(`
      select pgfresh_engine.note_trouble(s.id, null, r.type_id, 'older_source', array['1'], 1, pgfresh.clock(), null, pgfresh.clock()),
        pgfresh_engine.note_trouble(s.id, 2::smallint, null, 'denied', array['1'], 1, pgfresh.clock(), 'HTTP 401', pgfresh.clock())
      from pgfresh.sources as s, pgfresh.data_type_registry as r where s.name = 'keyed' and r.data_type = 'old'`);
    await scene.db.query(
      `select pgfresh.upsert_active_subscription('ann', 'A', 'unserved'), pgfresh_engine.plan_due_pairs(100)`,
    );
    await scene.db.query(`insert into pgfresh_engine.worker_service (worker, fetchers, types)
      select w.id, '{unservd}', array(select type_id from pgfresh.data_type_registry where data_type <> 'unserved') from pgfresh_engine.process as w where w.kind = 'worker'`);
    await scene.db.query('create table public.gone (like public.mirror including all)');
    await scene.db.query(`update pgfresh.data_type_registry set table_name = 'gone' where data_type = 'broken'`);
    await scene.db.query('drop table public.gone');
    const screen = (await top()).stdout;
    expect(screen).toMatch(
      /^pgfresh .*\n\nAPI key 2 of keyed is not used \(refused\) until \S+Z: the provider refuses API key 2: HTTP 401\. Next: Renew the API key, then run "pgfresh source resume keyed"\.$/m,
    );
    expect(screen).toMatch(
      /^old is not refreshed \(paused\) until \S+Z: 1 answers in a row were older than what is there\. Next: It is tried by itself then; "pgfresh source resume keyed" tries at once\.$/m,
    );
    expect(screen).toMatch(
      /^unserved is not refreshed \(no_worker\): No worker that runs has the fetcher unserved; did you mean unservd\?$/m,
    );
    expect(screen).toMatch(/^broken is not refreshed \(unresolved\): table_name: .*gone.*\. Next: /m);
    expect(screen).toMatch(/^unserved +1 +1 +0\.0 % +1 +– +– +– +1 held /m);
    expect(screen.indexOf('not refreshed')).toBeLessThan(screen.indexOf('% fresh'));
  });

  it('truth 8: says when a quota ends', async () => {
    await scene.source('small', { quotaBytes: 1_000 });
    await scene.type('dear', 'small');
    await scene.db.query(
      `insert into pgfresh.usage_corrections (source, bytes, reason) values ('small', 5000, 'test')`,
    );
    expect((await top()).stdout).toMatch(
      /^small is not called \(quota\) until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\. Next: Wait, or raise it with "pgfresh source set small quota_bytes <bytes>"\.$/m,
    );
    await scene.db.query(`delete from pgfresh.data_type_registry where data_type = 'dear'`);
  });

  it('tells a planner that has nothing to do from one that is late or gone', async () => {
    const headline = async () => (await top()).stdout.split('\n')[0];
    await scene.db.query(`select pgfresh_engine.hold_duty('planner', gen_random_uuid(), '10 minutes')`);
    expect(await headline()).toMatch(/, planner running$/);
    await scene.db.query(`insert into pgfresh_engine.due values (pgfresh.clock() - interval '40 seconds', 1, 'late')`);
    expect(await headline()).toMatch(/, planner 4\d s behind$/);
    await scene.db.query('delete from pgfresh_engine.duty');
    expect(await headline()).toMatch(/, no planner for 4\d s$/);
    await scene.db.query(`delete from pgfresh_engine.due where key = 'late'`);
  });

  it('draws again and again on a terminal, and ends cleanly on Ctrl-C', async () => {
    const child = new CliProcess(['top', '--interval', '100ms'], onTerminal(cli()));
    await child.printed(/\[H.*\[H.*\[H/s);
    await scene.db.query(`insert into pgfresh.spending_stop (reason) values ('enough of it')`);
    await child.printed(/stopped: enough/);
    child.signal('SIGINT');
    expect(await child.exit).toBe(0);
    expect([child.stdout.startsWith('\x1b[?25l'), child.stdout.endsWith('\x1b[?25h')]).toEqual([true, true]);
    await scene.db.query('delete from pgfresh.spending_stop');
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
    expect(await runCommand(['top', '--log-level', 'silent'], { cwd: folder })).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^There is nothing to see yet\.\nNext: /) as string,
    });
    expect((await runCommand(['top', '--json', '--log-level', 'silent'], { cwd: folder })).stdout).toBe('null\n');
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
