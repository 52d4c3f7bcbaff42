/** The thread that keeps a process's lease: it has its own connection, and no busy loop of the process can starve it. */
import { parentPort, workerData } from 'node:worker_threads';
import { Database } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import { Events } from '../events/index.ts';
import { failpoint, within } from '../lifecycle/index.ts';
import type { FromLease, LeaseData, ToLease } from './lease-messages.ts';
import { Renewal } from './renewal.ts';

const port = parentPort!;
const { url, registration } = workerData as LeaseData;
const say = (message: FromLease): void => port.postMessage(message);

// A connection that has died silently is given up early enough to renew the lease by another one.
const database = new Database({
  url,
  events: new Events(),
  applicationName: 'pgfresh lease',
  poolSize: 1,
  statementTimeoutMs: 3_000,
  silenceMs: 1_000,
});
const lease = new Renewal(
  {
    query: async (statement, values) => {
      await failpoint('lease.before-beat');
      return database.query(statement, values);
    },
  },
  registration,
  { onAnswer: (answer) => say({ type: 'answered', answer }) },
);

const patienceMs = 1_000;

async function stop(): Promise<void> {
  const ended = lease.stop().then(
    () => database.close(),
    () => database.close(),
  );
  // Ends this thread only, and from inside, where nothing else is being run.
  await within(patienceMs, ended, () => process.exit());
  port.close();
}

port.on('message', (message: ToLease) => {
  if (message.type === 'hold') lease.hold(message.request, message.pieces);
  if (message.type === 'ended') lease.ended(message.request, message.pieces);
  if (message.type === 'hurry') lease.hurry();
  if (message.type === 'lost') lease.lose();
  if (message.type === 'stop') void stop();
});
lease.lost.addEventListener('abort', () => say({ type: 'lost' }));

try {
  await lease.start();
  say({ type: 'registered', id: lease.id });
} catch (error) {
  say({ type: 'failed', problem: problemOf(error) });
  await stop();
}
