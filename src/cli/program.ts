import { Command, Option } from 'commander';
import { settingNames, settings } from '../config/index.ts';
import { version } from '../database/index.ts';
import { exitMeanings } from '../errors/index.ts';
import { addCheck } from './commands/check.ts';
import { addConfig } from './commands/config.ts';
import { addCron } from './commands/cron.ts';
import { addDemo } from './commands/demo.ts';
import { addExplain } from './commands/explain.ts';
import { addJobs } from './commands/jobs.ts';
import { addMigrate } from './commands/migrate.ts';
import { addRefresh } from './commands/refresh.ts';
import { addRefused } from './commands/refused.ts';
import { addDev, addRun, addWorker } from './commands/run.ts';
import { addSource } from './commands/source.ts';
import { addSpending } from './commands/spending.ts';
import { addTop } from './commands/top.ts';
import { addTry } from './commands/try.ts';
import { addType } from './commands/type.ts';
import { formatHelp } from './help.ts';
import { refuseUnknownCommand } from './unknown-command.ts';

const examples = `
Examples:
  pgfresh demo                               a made-up market and its live board, in an empty folder
  pgfresh dev                                everything, on an embedded PostgreSQL
  DATABASE_URL=postgres://… pgfresh migrate  prepare your own PostgreSQL
  DATABASE_URL=postgres://… pgfresh run      run against it
  pgfresh check                              what is wrong, and what to do about it
  pgfresh try quote AAPL                     fetch it once, check everything, write nothing
  pgfresh refresh quote AAPL                 have it fetched now, and tell how it ended
  pgfresh explain quote AAPL                 why it is or is not being refreshed
  pgfresh top                                how fresh everything is, the queue and the limits, live
  pgfresh type list                          what is kept fresh
  pgfresh source list                        how the providers are, and what they may still use
  pgfresh stop-spending                      call no provider until resume-spending
  pgfresh jobs list                          what runs at set times, and how it went
  pgfresh cron explain "30 2 * * *"          when a cron expression runs, in plain words
  pgfresh config --json                      every setting and where it comes from

A setting is taken from its flag, else its environment variable, else pgfresh.config.ts, else the default.

Exit codes:
${Object.entries(exitMeanings)
  .map(([code, meaning]) => `  ${code}  ${meaning}`)
  .join('\n')}`;

const commands = [
  addDemo,
  addDev,
  addRun,
  addWorker,
  addMigrate,
  addCheck,
  addType,
  addSource,
  addTry,
  addRefresh,
  addRefused,
  addExplain,
  addTop,
  addSpending,
  addJobs,
  addCron,
  addConfig,
];

export function createProgram(): Command {
  const program = new Command('pgfresh')
    .description('Keeps PostgreSQL tables that mirror metered APIs fresh for the people who are looking at them now.')
    .version(version, '-V, --version', 'print the version')
    .option('-c, --config <file>', 'configuration file (default: pgfresh.config.ts of this folder, if there is one)')
    .option('--json', 'print data as JSON')
    .option('--debug', 'show every step, and where an error came from')
    .helpOption('-h, --help', 'show this help')
    .helpCommand('help [command]', 'show the help of a command')
    .addHelpText('after', examples)
    .configureHelp({ showGlobalOptions: true, formatHelp })
    .configureOutput({ outputError: () => {} })
    .exitOverride()
    .action((_options: object, command: Command) => {
      refuseUnknownCommand(command);
      command.help();
    });
  for (const name of settingNames)
    program.addOption(new Option(settings[name].flag, `${settings[name].about} [${settings[name].env}]`));
  for (const add of commands) add(program);
  // Last: the commands would inherit it.
  return program.allowExcessArguments();
}
