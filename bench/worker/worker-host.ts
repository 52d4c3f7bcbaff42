import { report, serve } from '../child-side.ts';
import { now } from '../clock.ts';
import type { Ended, Place } from './contender.ts';
import { selectContenders } from './contenders/index.ts';

// The program of a worker process: it runs one contender's worker, and tells how many jobs it has ended.

const reportEveryMs = 10;

const [name, place] = process.argv.slice(2) as [string, string];
const first = { at: 0, jobs: 0 };
let ended = 0;
let told = 0;

const [contender] = selectContenders([name]);
const worker = await contender!.worker(JSON.parse(place) as Place, (jobs) => {
  ended += jobs;
  if (first.at > 0) return;
  first.at = now();
  // What ends in the same turn ended together.
  setImmediate(() => (first.jobs = ended));
});
setInterval(() => {
  if (told === ended || first.jobs === 0) return;
  told = ended;
  report({ type: 'told', value: { jobs: ended, first } satisfies Ended });
}, reportEveryMs);

serve({
  start: () => worker.start(),
  cpu: () => process.cpuUsage(),
  steps: () => worker.steps?.() ?? {},
  heap: () => {
    // Twice, because what the first one finalises is garbage for the second.
    globalThis.gc!();
    globalThis.gc!();
    return process.memoryUsage().heapUsed;
  },
});
report({ type: 'ready', value: undefined });
