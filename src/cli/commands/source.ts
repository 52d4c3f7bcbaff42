import type { Command } from 'commander';
import { bytes, duration, sizeText, timeText } from '../../config/index.ts';
import { PgfreshError } from '../../errors/index.ts';
import {
  calibrateSource,
  clearOverride,
  listSources,
  notesOf,
  overrideSource,
  pauseSource,
  resumeSource,
  showSource,
  type Calibration,
  type SourceHealth,
} from '../../sources/index.ts';
import { contextOf, lookAtDatabase, withDatabase } from '../context.ts';
import { instant, parsed } from '../option-values.ts';
import { table } from '../output.ts';
import { refuseUnknownCommand } from '../unknown-command.ts';

const empty = `No sources yet.
Next: Add one to sources of pgfresh.config.ts and run "pgfresh migrate", or insert a row into pgfresh.sources; docs/guides/data-types.md shows both.`;

export function addSource(program: Command): void {
  const command = program
    .command('source')
    .description('show, pause, resume, set and calibrate the providers')
    .action((_options: object, source: Command) => {
      refuseUnknownCommand(source);
      source.help();
    });
  command.command('list').description('list all sources with their state and remaining limits').action(showList);
  command
    .command('show')
    .description('show all details of a source')
    .argument('<name>', 'name of the source')
    .action(showOne);
  command
    .command('pause')
    .description('stop calling it, until it is resumed or for a while; running calls continue')
    .argument('<name>', 'name of the source')
    .option('--for <time>', 'duration, for instance 30m or 6h', parsed(duration))
    .option('--reason <text>', 'reason, shown by explain and check')
    .action(pause);
  command
    .command('resume')
    .description('call it again at once, whether an operator, the provider or the breaker paused it')
    .argument('<name>', 'name of the source')
    .action(resume);
  command
    .command('calibrate')
    .description("correct its byte ledger to the provider's own figure, with one entry")
    .argument('<name>', 'name of the source')
    .argument('<used>', 'usage as reported by the provider, for instance 12.4GB', parsed(bytes))
    .option('--since <time>', "start of the provider's count (default: the window of its quota)", instant)
    .option('--reason <text>', 'origin of the figure')
    .option('--dry-run', 'show the difference, and write nothing')
    .action(calibrate);
  command
    .command('set')
    .description('override one of its settings until it is cleared')
    .argument('<name>', 'name of the source')
    .argument('<setting>', 'column, for instance rate_limit_per_minute')
    .argument('<value>', 'value, for instance 120, 500MB or 10s; none for no limit')
    .requiredOption('--reason <text>', 'why; list, show, check and migrate show it')
    .action(setOne);
  command
    .command('clear')
    .description('remove overrides, so that the configuration applies again')
    .argument('<name>', 'name of the source')
    .argument('[setting]', 'one setting (default: all)')
    .action(clear);
  // Last, because subcommands inherit it.
  command.allowExcessArguments();
}

async function showList(_options: object, command: Command): Promise<void> {
  const context = contextOf(command);
  const sources = await lookAtDatabase(context, 'source list', listSources);
  context.output.result({ sources }, () => (sources.length === 0 ? empty : listed(sources)));
}

async function showOne(name: string, _options: object, command: Command): Promise<void> {
  const context = contextOf(command);
  const source = await lookAtDatabase(context, 'source show', (db) => showSource(db, name));
  context.output.result({ source }, () => shown(source));
}

async function pause(name: string, options: { for?: number; reason?: string }, command: Command): Promise<void> {
  const context = contextOf(command);
  await withDatabase(context, 'source pause', async ({ database }) => {
    const source = await pauseSource(database, name, { ms: options.for, reason: options.reason });
    const until = source.paused_until === 'infinity' ? 'it is resumed' : timeText(source.paused_until!);
    context.output.result({ source }, () => `${name} is paused until ${until}.`);
  });
}

async function resume(name: string, _options: object, command: Command): Promise<void> {
  const context = contextOf(command);
  await withDatabase(context, 'source resume', async ({ database }) => {
    const source = await resumeSource(database, name);
    const off = `${name} is not paused any more, but it is switched off.\nNext: Set enabled in pgfresh.config.ts, or in pgfresh.sources.`;
    context.output.result({ source }, () => (source.enabled ? `${name} may be called again.` : off));
  });
}

async function setOne(
  name: string,
  column: string,
  value: string,
  { reason }: { reason: string },
  command: Command,
): Promise<void> {
  const context = contextOf(command);
  await withDatabase(context, 'source set', async ({ database }) => {
    const override = { column, value: value === 'none' ? null : written(column, value), reason };
    const source = await overrideSource(database, name, override);
    const stays = column in source.overrides ? ` It stays until "pgfresh source clear ${name}".` : '';
    context.output.result({ source }, () => `${column} of ${name} is ${value} now.${stays}`);
  });
}

/** A size may be written as in the configuration; PostgreSQL reads times such as 10s itself. */
function written(column: string, value: string): string {
  if (column !== 'quota_bytes') return value;
  const { data, error } = bytes.safeParse(value);
  if (error) throw new PgfreshError('PGF_USAGE', { problem: `quota_bytes: ${error.issues[0]!.message}, got ${value}` });
  return String(data);
}

async function clear(name: string, column: string | undefined, _options: object, command: Command): Promise<void> {
  const context = contextOf(command);
  await withDatabase(context, 'source clear', async ({ database }) => {
    const count = await clearOverride(database, name, column);
    const done = count === 0 ? 'Nothing to do' : `${count} setting${count === 1 ? '' : 's'} cleared`;
    context.output.result({ cleared: count }, () => `${done}: ${name} follows the configuration.`);
  });
}

async function calibrate(
  name: string,
  used: number,
  options: { since?: Date; reason?: string; dryRun?: boolean },
  command: Command,
): Promise<void> {
  const context = contextOf(command);
  await withDatabase(context, 'source calibrate', async ({ database }) => {
    const calibration = await calibrateSource(database, name, used, options);
    context.output.result({ calibration }, () => compared(calibration));
  });
}

function compared({ provider_bytes, ledger_bytes, gap_bytes, correction, since }: Calibration): string {
  const rows = [
    ['since', timeText(since)],
    ['provider', `${provider_bytes} bytes (${sizeText(provider_bytes)})`],
    ['ledger', `${ledger_bytes} bytes (${sizeText(ledger_bytes)})`],
    ['gap', `${gap_bytes > 0 ? '+' : ''}${gap_bytes} bytes (${sizeText(gap_bytes)})`],
  ];
  const entered = correction === null ? 'Nothing was written.' : `Entered as correction ${correction}.`;
  return `${table(rows)}\n${gap_bytes === 0 ? 'They agree.' : entered}`;
}

function listed(sources: readonly SourceHealth[]): string {
  const head = ['source', 'state', 'calls free', 'bytes free', 'pace', 'last success', 'why'];
  const rows = sources.map((source) => [
    source.source,
    source.state,
    source.calls_free === null ? 'no limit' : `${source.calls_free} of ${callsAMinute(source)}/min`,
    source.quota_free === null ? 'no limit' : `${sizeText(source.quota_free)} of ${sizeText(source.quota_cap!)}`,
    source.quota_pace === null ? '–' : `${sizeText(source.quota_pace * 86_400)}/day`,
    source.last_success_at === null ? 'never' : timeText(source.last_success_at),
    notesOf(source).join('; '),
  ]);
  const isLimited = sources.some((source) => source.calls_free !== null || source.quota_free !== null);
  return [table([head, ...rows]), ...(isLimited ? ['', free] : [])].join('\n');
}

const free =
  'Free is what may be used this moment. Calls are spread over the minute, bytes over the window of the quota at the pace shown.';

function callsAMinute({ rate_limit_per_minute: rate, api_keys: keys }: SourceHealth): number {
  return (rate ?? 0) * keys;
}

function shown(source: SourceHealth): string {
  const rows = Object.entries<SourceHealth[keyof SourceHealth]>({ ...source }).flatMap(([column, value]) =>
    value === null || (typeof value === 'object' && !(value instanceof Date)) ? [] : [[column, cell(column, value)]],
  );
  return table([...rows, ...notesOf({ ...source, pause_reason: null }).map((note) => ['note', note])]);
}

function cell(column: string, value: string | number | boolean | Date): string {
  if (value instanceof Date || column === 'paused_until') return timeText(value as Date | string);
  if (column === 'quota_pace') return `${sizeText(Number(value) * 86_400)}/day`;
  if (column.startsWith('quota_') && typeof value === 'number') return `${value} bytes (${sizeText(value)})`;
  return String(value);
}
