import { readFile } from 'node:fs/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Backfill, BackfillProgress, Cancelled, JobDetails, JobRun, JobStatus } from '../../src/schedule/index.ts';
import { runCommand } from '../harness/command-line.ts';
import { temporaryFolder } from '../harness/folder.ts';
import { CliProcess, runCli } from '../harness/process.ts';
import { ScheduleScene, until } from '../schedule/scene.ts';

let scene: ScheduleScene;
let cwd = '';
/** Ends of handlers that have begun, by the job's name. */
const held = new Map<string, AbortSignal>();

beforeAll(async () => {
  scene = await ScheduleScene.open();
  cwd = await temporaryFolder('jobs');
  await scene.job('nightly', {
    description: 'Tidies up',
    schedule: '0 3 * * *',
    timezone: 'America/New_York',
    blackout_dates: ['2026-01-07'],
  });
  await scene.job('hourly', { schedule: '0 * * * *', params: { days: 30 } });
  await scene.job('often', { every_min: '10 minutes', every_max: '15 minutes' });
  await scene.job('failing', { function_name: 'fail', schedule: '@yearly' });
  await scene.job('slow', { kind: 'handler', function_name: 'slow', schedule: '@yearly', timeout: '5 minutes' });
});

const env = () => ({ DATABASE_URL: scene.url });
const pgfresh = (...args: string[]) => runCommand(['jobs', ...args], { env: env() });
const json = async <T>(...args: string[]) => JSON.parse((await pgfresh(...args, '--json')).stdout) as T;

describe('pgfresh jobs, before there is a scheduler', () => {
  it('run is accepted and says that nobody runs it yet; the second time it is skipped', async () => {
    expect(await pgfresh('run', 'hourly')).toMatchObject({
      code: 0,
      stdout: 'Run 1: accepted, but no scheduler runs now: it starts when one does.\n',
    });
    expect((await pgfresh('run', 'hourly')).stdout).toMatch(/^Skipped: a run of it waits already \(run 1\)\.$/m);
  });

  it('cancel takes back what waits', async () => {
    expect((await pgfresh('cancel', 'hourly')).stdout).toBe('Run 1 is cancelled: it had not begun.\n');
    expect((await pgfresh('cancel', 'hourly')).stdout).toBe('hourly has nothing open that could be cancelled.\n');
  });

  it('backfill queues and says the same; what is left of it can be cancelled', async () => {
    const args = ['backfill', 'hourly', '--from', '2026-01-05T06:00Z', '--until', '2026-01-05T09:00Z'];
    expect((await pgfresh(...args, '--dry-run')).stdout).toBe(
      'hourly has 3 slots from 2026-01-05T06:00:00Z to 2026-01-05T08:00:00Z.\n',
    );
    expect((await pgfresh(...args)).stdout).toMatch(
      /\n3 are queued; 0 have succeeded or are open already\.\nNo scheduler runs now/,
    );
    const { cancelled } = await json<{ cancelled: Cancelled[] }>('cancel', 'hourly', '--backfill');
    expect(cancelled.map(({ state }) => state)).toEqual(['cancelled', 'cancelled', 'cancelled']);
  });
});

describe('pgfresh jobs', () => {
  beforeAll(async () => {
    await scene.scheduler({
      slow: ({ job, signal }) =>
        new Promise((_resolve, reject) => {
          held.set(job, signal);
          signal.addEventListener('abort', () => reject(signal.reason as Error));
        }),
    });
    await scene.idle();
  });

  it('list shows all of them', async () => {
    const { code, stdout } = await runCli(['jobs', 'list'], { cwd, env: env() });
    expect(code).toBe(0);
    expect(stdout).toMatch(/^job +state +when +next run +last run +success +p95 +message\n/);
    expect(stdout).toMatch(/^nightly +ok +0 3 \* \* \* America\/New_York +2026-01-06T08:00:00Z +never +– +–$/m);
    expect(stdout).toMatch(/^often +ok +every 10m–15m +2026-01-05T12:1/m);
    const { jobs } = await json<{ jobs: JobStatus[] }>('list');
    expect(jobs.map(({ name }) => name)).toEqual(['failing', 'hourly', 'nightly', 'often', 'slow']);
    expect(jobs[1]).toMatchObject({ schedule: '0 * * * *', total_runs: 0, next_run_at: '2026-01-05T13:00:00.000Z' });
  });

  it('list shows more of them than come in one answer of the database', async () => {
    await scene.db.query(
      `insert into pgfresh.scheduled_jobs (name, function_name, schedule, enabled) select 'page-' || n, 'work', '@yearly', false from generate_series(1, 1000) as n`,
    );
    const { jobs } = await json<{ jobs: JobStatus[] }>('list');
    expect(new Set(jobs.map(({ name }) => name)).size).toBe(1_005);
    await scene.db.query(`delete from pgfresh.scheduled_jobs where name like 'page-%'`);
  });

  it('show tells all of one', async () => {
    const { stdout } = await pgfresh('show', 'nightly');
    expect(stdout).toMatch(/^description +Tidies up$/m);
    expect(stdout).toMatch(/^timeout_ms +30s$/m);
    expect(stdout).toMatch(/^jitter_ms +0s$/m);
    expect(stdout).toMatch(/^blackout_dates +2026-01-07$/m);
    expect(stdout).toMatch(/\n\nnext slot +skipped\n2026-01-06T08:00:00Z\n2026-01-07T08:00:00Z +blackout\n/);
    const shown = await json<{ job: JobDetails; next: object[]; runs: JobRun[] }>('show', 'hourly');
    expect(shown).toMatchObject({ job: { params: { days: 30 }, timeout_ms: 30_000 }, next: { length: 3 } });
    expect(shown.runs.map(({ state }) => state)).toEqual(['cancelled', 'cancelled', 'cancelled', 'cancelled']);
  });

  it('next shows the slots to come', async () => {
    expect((await pgfresh('next', 'often')).stdout).toMatch(/^next slot +skipped\n2026-01-05T12:1\d:\d\dZ\n$/);
  });

  it('run tells how it ended, and its exit code too', async () => {
    const good = await pgfresh('run', 'hourly', '--params', '{"days": 7}');
    expect(good).toMatchObject({ code: 0, stdout: expect.stringMatching(/^Run \d+ succeeded after 0 ms: worked\n$/) });
    expect(good.stderr).toMatch(/^Run \d+ of hourly: accepted\. Ctrl-C ends the wait, not the run\.$/m);
    expect(await scene.value('(select params from public.done order by id desc limit 1)')).toEqual({ days: 7 });
    const bad = await pgfresh('run', 'failing');
    expect(bad.code).toBe(1);
    expect(bad.stdout).toMatch(/^Run \d+ failed after 0 ms: no luck\n\{\n[^]*"sqlstate": "XX123"/);
  });

  it('truth 10: list and show say that a job fails, and run says when it is tried again', async () => {
    await scene.job('retried', { function_name: 'fail', schedule: '@yearly', retries: 1, retry_base: '1 hour' });
    const bad = await pgfresh('run', 'retried');
    expect(bad.stdout).toMatch(/\nIt is tried again at 2026-01-05T13:00:00Z: run \d+, attempt 2\.\n$/);
    expect((await pgfresh('list')).stdout).toMatch(/^retried +failing .* its last run has failed: no luck$/m);
    expect((await pgfresh('show', 'retried')).stdout).toMatch(
      /^state +failing$[^]*^Next: See what it said: pgfresh jobs/m,
    );
    const { retry } = await json<{ retry: object | null }>('run', 'failing');
    expect(retry).toBeNull();
    await pgfresh('cancel', 'retried');
    await scene.db.query(`delete from pgfresh.scheduled_jobs where name = 'retried'`);
  });

  it('Ctrl-C ends the wait and not the run, which cancel ends', async () => {
    const waiting = new CliProcess(['jobs', 'run', 'slow', '--json'], { cwd, env: env() });
    await until(() => held.has('slow'));
    await waiting.printed(/Ctrl-C ends the wait/);
    waiting.signal('SIGINT');
    expect(await waiting.exit).toBe(0);
    expect(JSON.parse(waiting.stdout)).toMatchObject({ success: true, run: null });
    expect(held.get('slow')!.aborted).toBe(false);
    // runs 11: one that is refused, because another one is under way, is no success.
    expect(await pgfresh('run', 'slow')).toMatchObject({ code: 1, stdout: expect.stringContaining('under way') });
    expect((await pgfresh('cancel', 'slow')).stdout).toMatch(/^Run \d+ is cancelling: its scheduler is told/);
    await scene.idle();
    expect(held.get('slow')!.aborted).toBe(true);
    expect((await json<{ runs: JobRun[] }>('history', 'slow')).runs).toMatchObject([{ state: 'cancelled' }]);
    expect((await pgfresh('list')).stdout).toMatch(/^slow +ok .*Z stopped .* it was cancelled$/m);
  });

  it('history shows the newest first, by state', async () => {
    const { runs } = await json<{ runs: JobRun[] }>('history', 'hourly');
    expect(runs.map(({ state }) => state)).toEqual(['succeeded', ...Array<string>(4).fill('cancelled')]);
    const newest = ['history', 'hourly', '--limit', '1', '--before', String(runs[0]!.id + 1), '--state', 'succeeded'];
    expect((await pgfresh(...newest)).stdout).toMatch(
      /^run +slot +state +by +attempt +started +took +late +message\n\d+ +2026-01-05T12:00:00Z +succeeded +manual +1 +2026-01-05T12:00:00Z +0 ms +0 ms +worked\n$/,
    );
    const older = await json<{ runs: JobRun[] }>('history', 'hourly', '--before', String(runs[0]!.id));
    expect(older.runs).toEqual(runs.slice(1));
  });

  it('pause and resume', async () => {
    expect((await pgfresh('pause', 'nightly', '--for', '30h', '--reason', 'moving house')).stdout).toBe(
      'nightly is paused until 2026-01-06T18:00:00Z.\n',
    );
    const { job, next } = await json<{ job: JobDetails; next: object[] }>('show', 'nightly');
    expect(job).toMatchObject({ state: 'paused', paused_reason: 'moving house', paused_by: expect.any(String) });
    expect(next).toMatchObject([{ skipped: 'paused' }, { skipped: 'blackout' }, { skipped: null }]);
    expect((await pgfresh('resume', 'nightly')).stdout).toMatch(/^nightly is not paused any more\./);
    await scene.db.query(`update pgfresh.scheduled_jobs set enabled = false where name = 'nightly'`);
    expect((await pgfresh('resume', 'nightly')).stdout).toMatch(/but it is disabled\.\nNext: /);
    await scene.db.query(`update pgfresh.scheduled_jobs set enabled = true where name = 'nightly'`);
  });

  it('backfill runs the slots that have not succeeded, and tells how it gets on', async () => {
    const args = ['backfill', 'hourly', '--from', '2026-01-05T08:00Z', '--until', '2026-01-05T12:00Z'];
    const filling = new CliProcess(['jobs', ...args], { cwd, env: env() });
    await filling.printed(/Queued 4 of 4 slots\. Ctrl-C ends the wait, not the backfill\./);
    let over = false;
    void filling.exit.then(() => (over = true));
    // One a second, by a clock that goes when we say so.
    await until(async () => {
      await scene.advance('1 second');
      await scene.idle();
      return over;
    });
    expect(filling.stdout).toMatch(/\n4 succeeded, 0 failed, 0 cancelled, 0 to come\.\n$/);
    expect(filling.stderr).toMatch(/^4 of 4 done$/m);
    const slots = await scene.story('hourly');
    expect(slots.filter((line) => line.includes('backfill') && line.includes('succeeded'))).toEqual([
      '08:00 backfill succeeded attempt 2',
      '09:00 backfill succeeded',
      '10:00 backfill succeeded',
      '11:00 backfill succeeded',
    ]);
    const again = await json<Backfill & { progress: BackfillProgress | null }>(...args);
    expect(again).toMatchObject({ slots: 4, queued: 0, skipped: 4, schedulers: 1, progress: null });
  });

  it('backfill of what fails tells it, and its exit code too', async () => {
    const args = ['jobs', 'backfill', 'failing', '--from', '2025-01-01', '--until', '2025-01-02'];
    const filling = new CliProcess(args, { cwd, env: env() });
    expect(await filling.exit).toBe(1);
    expect(filling.stdout).toMatch(/\n0 succeeded, 1 failed, 0 cancelled, 0 to come\.\n$/);
  });

  it('backfill leaves out days on which the job does not run', async () => {
    const december = ['--from', '2025-12-01', '--until', '2025-12-04', '--dry-run'];
    await scene.db.query(`update pgfresh.scheduled_jobs set blackout_dates = '{2025-12-02}' where name = 'nightly'`);
    expect((await pgfresh('backfill', 'nightly', ...december)).stdout).toBe(
      'nightly has 2 slots from 2025-12-01T08:00:00Z to 2025-12-03T08:00:00Z. 1 more are on days on which it does not run.\n',
    );
  });
});

it('docs/guides/scheduling.md shows commands that work with its first job', async () => {
  const [, registered] = /```sql\n(.*?)^select /ms.exec(await readFile('docs/guides/scheduling.md', 'utf8'))!;
  await scene.db.query(registered!);
  await scene.idle();
  const page = await readFile('docs/guides/scheduling.md', 'utf8');
  const lines = [...page.matchAll(/^npx pgfresh (jobs .*)$/gm)].map(([, line]) => line!);
  const subcommands = lines.map((line) => line.split(' ')[1]!);
  expect(subcommands).toEqual(['list', 'show', 'next', 'history', 'run', 'cancel', 'pause', 'resume', 'backfill']);
  const words = (line: string) =>
    line.match(/'[^']*'|"[^"]*"|\S+/g)!.map((word) => word.replace(/^(['"])(.*)\1$/, '$2'));
  const ended = [];
  for (const line of lines) {
    ended.push(await runCommand(words(line), { env: env() }));
    await scene.idle();
  }
  expect(ended.map(({ code }, index) => [lines[index], code])).toEqual(lines.map((line) => [line, 0]));
});

it('a process with the role console brings the same over HTTP', async () => {
  const served = new CliProcess(['run', '--roles', 'console', '--port', '0'], { cwd, env: env() });
  const [url] = await served.printed(/http:\/\/127\.0\.0\.1:\d+/);
  const { jobs } = (await (await fetch(`${url}/api/jobs`)).json()) as { jobs: JobStatus[] };
  expect(jobs.map(({ name }) => name)).toContain('nightly');
  expect((await fetch(`${url}/api/jobs/nightly/pause`, { method: 'POST' })).status).toBe(401);
  served.signal('SIGTERM');
  expect(await served.exit).toBe(0);
});

describe('pgfresh jobs refuses', () => {
  const cases: [args: string[], exit: number, message: RegExp][] = [
    [['show', 'nihgtly'], 1, /PGF_JOB_UNKNOWN There is no job "nihgtly"; did you mean "nightly"\?/],
    [['run', 'NIGHTLY'], 1, /did you mean "nightly"\?/],
    [['cancel', 'slow', '--run', '1'], 1, /PGF_RUN_UNKNOWN The job slow has no run 1$/m],
    [['run', 'slow', '--params', '[1]'], 2, /PGF_USAGE .*expected a JSON object such as '\{"days": 7\}'/],
    [['pause', 'slow', '--for', 'ever'], 2, /expected a positive time such as "30s"/],
    [['history', 'slow', '--limit', '0'], 2, /expected a number from 1 to 10000/],
    [['history', 'slow', '--state', 'bad'], 2, /Allowed choices are queued, waiting, running/],
    [['backfill', 'hourly'], 2, /required option '--from <time>' not specified/],
    [['backfill', 'often', '--from', '2026-01-01'], 1, /The job often has no slots in the past: .*jobs run/],
    [['lst'], 2, /unknown command 'lst' \(Did you mean list\?\)/],
  ];

  it('what makes no sense, and says what to do', async () => {
    for (const [args, exit, message] of cases) {
      const { code, stdout, stderr } = await pgfresh(...args);
      expect([args, code, stdout]).toEqual([args, exit, '']);
      expect(stderr).toMatch(message);
      expect(stderr).toMatch(/\nNext: /);
    }
  });
});
