/**
 * A scheduler with handlers that misbehave: `scheduler-process.ts <database> <name>`. Its handlers say on stdout when they
 * begin and end, which no trouble with the database can keep back. Ends by SIGTERM.
 */
import { once } from 'node:events';
import { setTimeout as wait } from 'node:timers/promises';
import type { JobContext, JobHandler, JobResult } from '../../../src/config/index.ts';
import { Database } from '../../../src/database/index.ts';
import { Events } from '../../../src/events/index.ts';
import { Scheduler } from '../../../src/schedule/index.ts';
import { logEvents } from '../../../src/watch/index.ts';
import { places, type Line } from './cast.ts';

const [url = '', workerName = ''] = process.argv.slice(2);
const good: JobResult = { success: true, message: 'good' };

const work: Record<string, JobHandler> = {
  counts: () => good,
  naps: async ({ db }) => {
    await db.query('select pg_sleep(0.2)');
    await wait(100);
    return good;
  },
  // Much longer than a lease: a process that loses it must stop this before another takes the run over.
  dawdles: async ({ signal }) => {
    await wait(35_000, undefined, { signal });
    return good;
  },
  throwsNul: () => {
    throw new Error('a zero \0 in it');
  },
  leavesOpen: async ({ db }) => {
    await db.query('begin');
    return good;
  },
  hangs: () => new Promise<JobResult>(() => {}),
  logs: ({ log }) => {
    const circle: Record<string, unknown> = { ns: 1n };
    circle['circle'] = circle;
    log('what no log can write \0', circle);
    return good;
  },
  floods: async ({ db }) => {
    await Promise.all(Array.from({ length: 3 * places }, () => db.query('select pg_sleep(0.2)')));
    return good;
  },
  emoji: () => ({ success: true, message: 'half \uD83D', details: { '\uDE00': '\uD83D\0' } }),
};

function say(line: Line): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

let spans = 0;

/** A handler counts as ended when it is told to stop: what it does after that is its own fault. */
function witnessed(handler: JobHandler): JobHandler {
  return async (context: JobContext) => {
    const span = ++spans;
    const { job, signal } = context;
    const ended = Promise.withResolvers<void>();
    signal.addEventListener('abort', () => ended.resolve(), { once: true });
    void ended.promise.then(() => say({ type: 'end', span, job, at: Date.now() }));
    say({ type: 'begin', span, job, at: Date.now() });
    try {
      return await handler(context);
    } finally {
      ended.resolve();
    }
  };
}

const events = new Events();
logEvents(events, 'warn', process.stderr);
events.subscribe(({ type }) => {
  if (type === 'scheduler.lease_lost' || type === 'scheduler.recovered') say({ type: 'event', name: type });
});
const db = new Database({ url, events, applicationName: 'pgfresh scheduler' });
const handlers = new Map(Object.entries(work).map(([name, handler]) => [name, witnessed(handler)]));
const options = { db, url, listenUrl: url, events, handlers, concurrency: places, drainMs: 3_000, workerName };
const scheduler = new Scheduler(options);
const asked = once(process, 'SIGTERM');
await scheduler.start();
say({ type: 'started' });
await asked;
await scheduler.stop();
await db.close();
// Handlers that hang keep nothing alive, but a socket of a flood may.
process.exit(0);
