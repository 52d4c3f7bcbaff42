import { Option, type Command } from 'commander';
import { durationBetween, timeText } from '../../config/index.ts';
import { askForRefresh, type AskedRefresh } from '../../planner/index.ts';
import { outcomes } from '../../refresh/index.ts';
import { admitKey, namingUnknownType } from '../../registry/index.ts';
import { contextOf, withDatabase } from '../context.ts';
import { interruption } from '../interruption.ts';
import { parsed } from '../option-values.ts';

export function addRefresh(program: Command): void {
  program
    .command('refresh')
    .description('refresh a pair now, even if it is fresh, and print the result')
    .argument('<type>', 'data type, for instance quote')
    .argument('<key>', 'key, for instance AAPL')
    .addOption(
      new Option('--timeout <time>', 'maximum time to wait for the end')
        .argParser(parsed(durationBetween('1ms', '1d')))
        .default(60_000, '60s'),
    )
    .option('--no-wait', 'do not wait for the end')
    .addHelpText(
      'after',
      `
Exit codes:
  0  the pair is up to date with its source, or with --no-wait the refresh is queued
  1  the refresh failed, or has not ended in time and continues`,
    )
    .action(refresh);
}

async function refresh(
  type: string,
  key: string,
  { timeout, wait }: { timeout: number; wait: boolean },
  command: Command,
): Promise<void> {
  const context = contextOf(command);
  await withDatabase(context, 'refresh', async ({ database }) => {
    const spelled = await namingUnknownType(database, type, () => admitKey(database, type, key));
    const signal = wait
      ? AbortSignal.any([interruption(), AbortSignal.timeout(Math.ceil(timeout))])
      : AbortSignal.abort();
    const onWaiting = (words: string): void => (wait ? context.output.hint(`Waiting: ${words}`) : undefined);
    const asked = await askForRefresh(database, type, spelled, { signal, onWaiting });
    const good = asked.attempt === null ? !wait : asked.attempt.status === 'succeeded';
    context.output.result(asked, () => described(asked, wait));
    process.exitCode = good ? 0 : 1;
  });
}

function described({ job_id, attempt, pair }: AskedRefresh, wait: boolean): string {
  const name = `${pair.data_type} ${pair.key}`;
  if (!attempt) {
    const first = wait ? `${name} has not been fetched yet: ${pair.words}` : `${name} is queued as job ${job_id}.`;
    return `${first}\nNext: the refresh goes on; "pgfresh explain ${name}" shows it.`;
  }
  const says = Object.hasOwn(outcomes, attempt.outcome) ? outcomes[attempt.outcome as keyof typeof outcomes].says : '';
  const cost = `${attempt.calls} call${attempt.calls === 1 ? '' : 's'}, ${attempt.bytes} bytes`;
  const end = `${name}: ${attempt.outcome}. ${attempt.error ?? says} (${cost})`;
  if (attempt.status === 'succeeded') return end;
  const retry = pair.until === null ? 'It is being tried again. ' : `It is tried again at ${timeText(pair.until)}. `;
  const again = attempt.status === 'retryable' ? retry : '';
  return `${end}\nNext: ${again}"pgfresh try ${name}" shows every check; "pgfresh explain ${name}" what happens next.`;
}
