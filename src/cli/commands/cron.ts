import type { Command } from 'commander';
import { timeText } from '../../config/index.ts';
import { explainCron, nextSlots, parseCron, type CronExplanation } from '../../schedule/index.ts';
import { contextOf } from '../context.ts';
import { instant, upTo } from '../option-values.ts';
import { table } from '../output.ts';
import { refuseUnknownCommand } from '../unknown-command.ts';

interface CronOptions {
  zone: string;
  from?: Date;
  count: number;
}

export function addCron(program: Command): void {
  const command = program
    .command('cron')
    .description('show when a cron expression runs; needs no database')
    .action((_options: object, cron: Command) => {
      refuseUnknownCommand(cron);
      cron.help();
    });
  const subcommand = (name: string, description: string) =>
    command
      .command(name)
      .description(description)
      .argument('<expression>', 'five fields such as "30 2 * * MON-FRI", or a word such as @daily')
      .option('--zone <name>', 'time zone, such as America/New_York', 'UTC')
      .option('--from <time>', 'show runs after this time (default: now)', instant)
      .option('--count <number>', 'number of runs', upTo(1_000), 5);
  subcommand('next', 'the next runs, in UTC').action(next);
  subcommand('explain', 'in plain words, with the next runs and what changes of the clocks do to it').action(explain);
  // Last, because subcommands inherit it.
  command.allowExcessArguments();
}

function next(expression: string, { zone, from = new Date(), count }: CronOptions, command: Command): void {
  const slots = nextSlots(parseCron(expression), zone, from, count).map(timeText);
  contextOf(command).output.result(slots, () => (slots.length === 0 ? never : slots.join('\n')));
}

function explain(expression: string, { zone, from = new Date(), count }: CronOptions, command: Command): void {
  const explanation = explainCron(expression, zone, from, count);
  const value = {
    ...explanation,
    next: explanation.next.map(timeText),
    surprises: explanation.surprises.map((surprise) => ({ ...surprise, at: timeText(surprise.at) })),
  };
  contextOf(command).output.result(value, () => described(explanation));
}

const never = 'It never runs: there is no occurrence within 8 years.';

function described({ expression, zone, words, next: slots, surprises }: CronExplanation): string {
  const runs = slots.map((slot) => [`  ${timeText(slot)}`, localTime(slot, zone)]);
  const changes = surprises.map(({ at, words: what }) => [`  ${timeText(at)}`, what]);
  return [
    `${expression} in ${zone}: ${words}.`,
    '',
    ...(runs.length === 0 ? [never] : ['Next runs', table(runs)]),
    '',
    ...(changes.length === 0
      ? ['No change of the clocks in the next 400 days concerns it.']
      : ['Changes of the clocks in the next 400 days that concern it', table(changes)]),
  ].join('\n');
}

/** The local time in a zone, such as Sun 2026-03-08 03:00 GMT-4. */
function localTime(slot: Date, timeZone: string): string {
  const shown = (options: Intl.DateTimeFormatOptions, type: Intl.DateTimeFormatPartTypes): string =>
    new Intl.DateTimeFormat('en-US', { timeZone, ...options }).formatToParts(slot).find((part) => part.type === type)!
      .value;
  // A locale that writes dates as 2026-03-08.
  const time = new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'short' }).format(slot);
  return `${shown({ weekday: 'short' }, 'weekday')} ${time} ${shown({ timeZoneName: 'shortOffset' }, 'timeZoneName')}`;
}
