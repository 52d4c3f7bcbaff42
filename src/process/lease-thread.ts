/** The thread that renews a process's lease. It has its own connection, and a busy main thread cannot starve it. */
import { parentPort, workerData } from 'node:worker_threads';
import { Database } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import { Events } from '../events/index.ts';
import { failpoint, within } from '../lifecycle/index.ts';
import type { FromLease, LeaseData, ToLease } from './lease-messages.ts';
import { Renewal } from './renewal.ts';

const port = parentPort!;
const { url, registration } = workerData as LeaseData;
const send = (message: FromLease): void => port.postMessage(message);

// Gives up a dead connection early enough to renew the lease over another one.
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
  { onAnswer: (answer) => send({ type: 'answered', answer }) },
);

const stopTimeoutMs = 1_000;

async function stop(): Promise<void> {
  const ended = lease.stop().then(
    () => database.close(),
    () => database.close(),
  );
  // In a worker thread, process.exit ends only the thread.
  await within(stopTimeoutMs, ended, () => process.exit());
  port.close();
}

port.on('message', (message: ToLease) => {
  if (message.type === 'hold') lease.hold(message.request, message.pieces);
  if (message.type === 'ended') lease.ended(message.request, message.pieces);
  if (message.type === 'hurry') lease.hurry();
  if (message.type === 'lost') lease.lose();
  if (message.type === 'stop') void stop();
});
lease.lost.addEventListener('abort', () => send({ type: 'lost' }));

try {
  await lease.start();
  send({ type: 'registered', id: lease.id });
} catch (error) {
  send({ type: 'failed', problem: problemOf(error) });
  await stop();
}
