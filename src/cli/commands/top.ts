import { once } from 'node:events';
import { resolve } from 'node:path';
import { InvalidArgumentError, Option, type Command } from 'commander';
import { duration } from '../../config/index.ts';
import { runningEmbedded, type Queryable } from '../../database/index.ts';
import { problemOf } from '../../errors/index.ts';
import { pause } from '../../lifecycle/index.ts';
import { readOverview } from '../../watch/index.ts';
import { contextOf, lookAtDatabase, withDatabase, type CommandContext } from '../context.ts';
import { overviewText } from '../overview-screen.ts';
import { Redraw } from '../redraw.ts';

const nothing = 'There is nothing to see yet.\nNext: "pgfresh dev" creates the database and runs everything.';
const idle = 'Nothing runs in this folder. This goes on when "pgfresh dev" does; Ctrl-C ends it.';
const minIntervalMs = 100;

export function addTop(program: Command): void {
  program
    .command('top')
    .description('show how fresh everything is, the queue and the limits, live; Ctrl-C ends it')
    .option('--once', 'print it once (default with --json, and if stdout is not a terminal)')
    .addOption(new Option('--interval <time>', 'time between updates').argParser(interval).default(2_000, '2s'))
    .action(async (options: { once?: boolean; interval: number }, command: Command) => {
      const context = contextOf(command);
      if (process.stdout.isTTY && !options.once && !context.output.json) return showLive(context, options.interval);
      const overview = await lookAtDatabase(context, 'top', readOverview);
      context.output.result(overview ?? null, () => (overview ? overviewText(overview) : nothing));
    });
}

async function showLive(context: CommandContext, intervalMs: number): Promise<void> {
  const config = await context.config();
  const { databaseUrl, dataDir } = config.settings;
  const stop = new AbortController();
  const end = (): void => stop.abort();
  const screen = new Redraw(process.stdout);
  let shown = false;
  const show = async (database: Queryable): Promise<void> => {
    const asked = once(stop.signal, 'abort').then(() => undefined);
    while (!stop.signal.aborted) {
      const overview = await Promise.race([readOverview(database), asked]);
      if (overview) screen.draw(overviewText(overview));
      shown = true;
      await pause(intervalMs, stop.signal);
    }
  };
  process.on('SIGINT', end).on('SIGTERM', end).on('SIGHUP', end);
  try {
    while (!stop.signal.aborted) {
      // Does not start the embedded server, which would keep others from starting it.
      const url = databaseUrl ?? (await runningEmbedded(resolve(dataDir), minIntervalMs));
      const found = {
        ...context,
        config: async () => ({ ...config, settings: { ...config.settings, databaseUrl: url } }),
      };
      try {
        if (url === undefined) screen.draw(idle);
        else await withDatabase(found, 'top', ({ database }) => show(database));
      } catch (error) {
        // A database that was reachable may come back, an embedded one under another address.
        if (!shown && databaseUrl !== undefined) throw error;
        screen.draw(`The database cannot be read, and is tried again: ${problemOf(error)}`);
      }
      await pause(intervalMs, stop.signal);
    }
  } finally {
    process.off('SIGINT', end).off('SIGTERM', end).off('SIGHUP', end);
    screen.end();
  }
}

function interval(text: string): number {
  const { data, error } = duration.safeParse(text);
  if (error) throw new InvalidArgumentError(error.issues[0]!.message);
  if (data < minIntervalMs) throw new InvalidArgumentError(`expected ${minIntervalMs}ms or more`);
  return data;
}
