import { now } from '../clock.ts';
import { findContender } from './contenders/index.ts';
import type { Command, Report, StartedJob } from './worker-message.ts';

// The program of a worker process: it runs one contender's worker and reports the jobs that it starts.

const countsEveryMs = 5;

const [name, url] = process.argv.slice(2) as [string, string];

// An interrupt at the terminal reaches the whole group; the bench ends its workers itself, and a worker whose
// bench is gone ends too.
for (const signal of ['SIGINT', 'SIGHUP'] as const) process.on(signal, () => {});
process.on('disconnect', () => process.exit(1));
process.on('uncaughtException', (error) => {
  process.send!({ type: 'failed', problem: error.stack ?? error.message } satisfies Report, () => process.exit(1));
});

const worker = await findContender(name).worker(url);

process.once('message', (command: Command) => {
  void worker.start(command.report === 'counts' ? countJobs() : listJobs());
});
report({ type: 'ready' });

function countJobs(): (id: number) => void {
  let started = 0;
  let reported = 0;
  let first = 0;
  let last = 0;
  setInterval(() => {
    if (started === reported) return;
    reported = started;
    report({ type: 'counts', counts: { started, first, last } });
  }, countsEveryMs);
  return () => {
    // The clock is not free, and a batch of no-op jobs takes less than the millisecond that would be seen here.
    if (started++ % 64 === 0) last = now();
    if (started === 1) first = last;
  };
}

function listJobs(): (id: number) => void {
  let jobs: StartedJob[] = [];
  return (id) => {
    jobs.push([id, now()]);
    if (jobs.length > 1) return;
    // After the work of this turn, so that the report does not delay the jobs that it is about.
    setImmediate(() => {
      report({ type: 'jobs', jobs });
      jobs = [];
    });
  };
}

function report(message: Report): void {
  process.send!(message);
}
