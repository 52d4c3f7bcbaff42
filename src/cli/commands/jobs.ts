import { Option, type Command } from 'commander';
import { z } from 'zod';
import { duration, timeText } from '../../config/index.ts';
import type { Queryable } from '../../database/index.ts';
import {
  backfillJob,
  cancelJob,
  endOfRun,
  jobHistory,
  listJobs,
  nextJobSlots,
  pauseJob,
  resumeJob,
  retryOf,
  runStates,
  showJob,
  triggerJob,
  type HistoryOptions,
  type JobStatus,
} from '../../schedule/index.ts';
import { BackfillWatch } from '../backfill-watch.ts';
import { contextOf, lookAtDatabase, withDatabase } from '../context.ts';
import { interruption } from '../interruption.ts';
import { backfilled, jobList, jobPage, runEnd, runList, slotList } from '../job-screen.ts';
import { instant, parsed, upTo } from '../option-values.ts';
import { refuseUnknownCommand } from '../unknown-command.ts';

const params = z.string().transform((text, context) => {
  try {
    const value = JSON.parse(text) as unknown;
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  } catch {}
  context.addIssue({ code: 'custom', message: `expected a JSON object such as '{"days": 7}'` });
  return z.NEVER;
});

export function addJobs(program: Command): void {
  const command = program
    .command('jobs')
    .description('show, run, cancel, pause, resume and backfill scheduled jobs')
    .action((_options: object, jobs: Command) => {
      refuseUnknownCommand(jobs);
      jobs.help();
    });
  const one = (name: string, description: string) =>
    command.command(name).description(description).argument('<name>', 'name of the job');
  command.command('list').description('list all jobs with their state, next run and last run').action(showList);
  one('show', 'show all details of a job').action(showOne);
  one('next', 'show its next slots, and which of them will be skipped')
    .option('--count <number>', 'number of slots', upTo(1_000), 5)
    .action(showNext);
  one('history', 'show its runs and skipped slots, newest first')
    .option('--limit <number>', 'maximum number of runs', upTo(10_000), 20)
    .option('--before <run>', 'only runs before this one', upTo(Number.MAX_SAFE_INTEGER))
    .addOption(new Option('--state <state>', 'only runs in this state').choices(runStates))
    .action(showHistory);
  one('run', 'run it now, besides its schedule, and print the result')
    .option('--params <json>', 'parameters instead of its own, as a JSON object', parsed(params))
    .option('--no-wait', 'do not wait for the end')
    .action(run);
  one('cancel', 'cancel its running run, or else the waiting one')
    .option('--run <number>', 'cancel this run', upTo(Number.MAX_SAFE_INTEGER))
    .option('--backfill', 'cancel the rest of its backfill')
    .action(cancel);
  one('pause', 'skip its slots, until it is resumed or for a while; a running run continues')
    .option('--for <time>', 'duration, for instance 30m or 6h', parsed(duration))
    .option('--reason <text>', 'reason, printed by show')
    .action(pause);
  one('resume', 'run it again from its next slot on').action(resume);
  one('backfill', 'run past slots one after another; slots that succeeded are skipped')
    .requiredOption('--from <time>', 'first slot at or after this time', instant)
    .option('--until <time>', 'last slot before this time (default: now)', instant)
    .option('--per-minute <number>', 'maximum runs per minute', upTo(6_000), 60)
    .option('--dry-run', 'show the slots, and run nothing')
    .option('--no-wait', 'do not wait for the end')
    .action(backfill);
  // Last, because subcommands inherit it.
  command.allowExcessArguments();
}

async function showList(_options: object, command: Command): Promise<void> {
  const context = contextOf(command);
  const jobs = await lookAtDatabase(context, 'jobs list', allJobs);
  context.output.result({ jobs }, () => jobList(jobs));
}

async function allJobs(db: Queryable): Promise<JobStatus[]> {
  const jobs: JobStatus[] = [];
  for (let page = await listJobs(db); page.length > 0; page = await listJobs(db, { after: jobs.at(-1)!.name }))
    jobs.push(...page);
  return jobs;
}

async function showOne(name: string, _options: object, command: Command): Promise<void> {
  const context = contextOf(command);
  const [job, next, runs] = await lookAtDatabase(context, 'jobs show', async (db) => [
    await showJob(db, name),
    await nextJobSlots(db, name, 3),
    await jobHistory(db, name, { limit: 5 }),
  ]);
  context.output.result({ job, next, runs }, () => jobPage(job, next, runs));
}

async function showNext(name: string, { count }: { count: number }, command: Command): Promise<void> {
  const context = contextOf(command);
  const next = await lookAtDatabase(context, 'jobs next', (db) => nextJobSlots(db, name, count));
  context.output.result({ next }, () => slotList(next));
}

async function showHistory(name: string, options: HistoryOptions, command: Command): Promise<void> {
  const context = contextOf(command);
  const runs = await lookAtDatabase(context, 'jobs history', (db) => jobHistory(db, name, options));
  context.output.result({ runs }, () => runList(runs));
}

async function run(name: string, options: { params?: object; wait: boolean }, command: Command): Promise<void> {
  const context = contextOf(command);
  await withDatabase(context, 'jobs run', async ({ database }) => {
    const asked = await triggerJob(database, name, options.params);
    const waits = asked.success && asked.schedulers !== 0 && options.wait;
    if (waits)
      context.output.hint(`Run ${asked.run_id} of ${name}: ${asked.message}. Ctrl-C ends the wait, not the run.`);
    const ended = waits ? await endOfRun(database, asked.run_id, interruption()) : undefined;
    if (!asked.success || ended?.success === false) process.exitCode = 1;
    const retry = ended && (await retryOf(database, ended.id));
    context.output.result({ ...asked, run: ended ?? null, retry: retry ?? null }, () => runEnd(asked, ended, retry));
  });
}

async function cancel(name: string, options: { run?: number; backfill?: boolean }, command: Command): Promise<void> {
  const context = contextOf(command);
  await withDatabase(context, 'jobs cancel', async ({ database }) => {
    const cancelled = await cancelJob(database, name, options);
    const lines = cancelled.map(({ run_id: id, state, message }) => `Run ${id} is ${state}: ${message}.`);
    context.output.result({ cancelled }, () => lines.join('\n') || `${name} has nothing open that could be cancelled.`);
  });
}

async function pause(name: string, options: { for?: number; reason?: string }, command: Command): Promise<void> {
  const context = contextOf(command);
  await withDatabase(context, 'jobs pause', async ({ database }) => {
    const job = await pauseJob(database, name, { ms: options.for, reason: options.reason });
    const until = job.paused_until === null ? 'it is resumed' : timeText(job.paused_until);
    context.output.result({ job }, () => `${name} is paused until ${until}.`);
  });
}

async function resume(name: string, _options: object, command: Command): Promise<void> {
  const context = contextOf(command);
  await withDatabase(context, 'jobs resume', async ({ database }) => {
    const job = await resumeJob(database, name);
    const off = `${name} is not paused any more, but it is disabled.\nNext: update pgfresh.scheduled_jobs set enabled = true.`;
    const next = job.next_run_at === null ? '' : ` Its next run is at ${timeText(job.next_run_at)}.`;
    context.output.result({ job }, () => (job.enabled ? `${name} is not paused any more.${next}` : off));
  });
}

interface BackfillFlags {
  from: Date;
  until?: Date;
  perMinute: number;
  dryRun?: boolean;
  wait: boolean;
}

async function backfill(name: string, { wait, ...options }: BackfillFlags, command: Command): Promise<void> {
  const context = contextOf(command);
  await withDatabase(context, 'jobs backfill', async ({ database }) => {
    const begun = await backfillJob(database, name, options);
    const waits = wait && begun.queued > 0 && begun.schedulers > 0;
    const watch = new BackfillWatch(database, begun, (line) => context.output.hint(line));
    const progress = waits ? await watch.end(interruption()) : undefined;
    if (progress && progress.failed > 0) process.exitCode = 1;
    context.output.result({ ...begun, progress: progress ?? null }, () => backfilled(begun, progress, options.dryRun));
  });
}
