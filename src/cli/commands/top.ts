import { once } from 'node:events';
import { setTimeout as rest } from 'node:timers/promises';
import { InvalidArgumentError, type Command } from 'commander';
import { duration } from '../../config/index.ts';
import type { Queryable } from '../../database/index.ts';
import { problemOf } from '../../errors/index.ts';
import { readOverview } from '../../watch/index.ts';
import { contextOf, lookAtDatabase } from '../context.ts';
import { overviewText } from '../overview-screen.ts';
import { Redraw } from '../redraw.ts';

const nothing = 'There is nothing to see yet.\nNext: "pgfresh dev" creates the database and runs everything.';
const shortest = 100;

export function addTop(program: Command): void {
  program
    .command('top')
    .description('show how fresh everything is, the queue and the limits, live; Ctrl-C ends it')
    .option('--once', 'show it once; so does --json, and an output that is no terminal')
    .option('--interval <time>', 'how often it is read', interval, 2_000)
    .action(async (options: { once?: boolean; interval: number }, command: Command) => {
      const context = contextOf(command);
      const live = process.stdout.isTTY && !options.once && !context.output.json;
      await lookAtDatabase(context, 'top', async (database) => {
        const overview = await readOverview(database);
        if (live && overview) return watch(database, options.interval);
        context.output.result(overview ?? null, () => (overview ? overviewText(overview) : nothing));
      });
    });
}

async function watch(database: Queryable, intervalMs: number): Promise<void> {
  const stop = new AbortController();
  const end = (): void => stop.abort();
  const asked = once(stop.signal, 'abort').then(() => undefined);
  const screen = new Redraw(process.stdout);
  process.on('SIGINT', end).on('SIGTERM', end).on('SIGHUP', end);
  try {
    while (!stop.signal.aborted) {
      // A database that is away may come back, and whoever watches wants to see that.
      const reading = readOverview(database).then((overview) => overviewText(overview!), failure);
      const text = await Promise.race([reading, asked]);
      if (text !== undefined) screen.draw(text);
      await rest(intervalMs, undefined, { signal: stop.signal }).catch(() => {});
    }
  } finally {
    process.off('SIGINT', end).off('SIGTERM', end).off('SIGHUP', end);
    screen.end();
  }
}

function failure(error: unknown): string {
  return `The database can not be read, and is tried again: ${problemOf(error)}`;
}

function interval(text: string): number {
  const { data, error } = duration.safeParse(text);
  if (error) throw new InvalidArgumentError(error.issues[0]!.message);
  if (data < shortest) throw new InvalidArgumentError(`expected ${shortest}ms or more`);
  return data;
}
