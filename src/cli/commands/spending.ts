import type { Command } from 'commander';
import { resumeSpending, stopSpending } from '../../sources/index.ts';
import { contextOf, withDatabase } from '../context.ts';

/** The global stop of all calls, and its end. */
export function addSpending(program: Command): void {
  program
    .command('stop-spending')
    .description('stop calling all providers until resume-spending; running calls continue')
    .option('--reason <text>', 'reason, shown by explain and check', 'stopped by hand')
    .action(stop);
  program.command('resume-spending').description('call providers again').action(resume);
}

async function stop({ reason }: { reason: string }, command: Command): Promise<void> {
  const context = contextOf(command);
  await withDatabase(context, 'stop-spending', async ({ database }) => {
    const changed = await stopSpending(database, reason);
    const text = changed ? 'Nothing is spent any more.' : 'It was stopped already.';
    context.output.result({ stopped: true, changed }, () => `${text}\nNext: "pgfresh resume-spending" lets it go on.`);
  });
}

async function resume(_options: object, command: Command): Promise<void> {
  const context = contextOf(command);
  await withDatabase(context, 'resume-spending', async ({ database }) => {
    const changed = await resumeSpending(database);
    const text = changed ? 'Providers may be called again.' : 'Nothing was stopped.';
    context.output.result({ stopped: false, changed }, () => text);
  });
}
