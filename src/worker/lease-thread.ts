/** The thread that keeps a worker's lease: it has its own connection, and no busy loop of the worker can starve it. */
import { parentPort, workerData } from 'node:worker_threads';
import { Database } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import { Events } from '../events/index.ts';
import { failpoint } from '../lifecycle/index.ts';
import { WorkerLease } from '../queue/index.ts';
import type { FromLease, LeaseData, ToLease } from './lease-messages.ts';

const port = parentPort!;
const { url, name } = workerData as LeaseData;
const say = (message: FromLease): void => port.postMessage(message);

const database = new Database({
  url,
  events: new Events(),
  applicationName: 'pgfresh lease',
  poolSize: 1,
  statementTimeoutMs: 5_000,
});
const lease = new WorkerLease(
  {
    query: async (statement, values) => {
      await failpoint('lease.before-beat');
      return database.query(statement, values);
    },
  },
  name,
  2_500,
);

const patienceMs = 1_000;

async function stop(): Promise<void> {
  // Ends this thread only, and from inside, where nothing else is being run.
  const tired = setTimeout(() => process.exit(), patienceMs);
  await lease.stop().catch(() => {});
  await database.close();
  clearTimeout(tired);
  port.close();
}

port.on('message', (message: ToLease) => {
  if (message.type === 'hold') lease.hold({ request: message.request, jobs: { length: message.jobs } });
  if (message.type === 'ended') lease.ended(message.request, message.jobs);
  if (message.type === 'lost') lease.lose();
  if (message.type === 'stop') void stop();
});
lease.lost.addEventListener('abort', () => say({ type: 'lost' }));

try {
  await lease.start();
  say({ type: 'registered', worker: lease.id });
} catch (error) {
  say({ type: 'failed', problem: problemOf(error) });
  await stop();
}
