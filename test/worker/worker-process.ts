/** A real worker process for tests that kill it: `worker-process.ts <database> <provider>`. Ends by SIGTERM. */
import { once } from 'node:events';
import { Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { Worker } from '../../src/worker/index.ts';
import { killConfig } from './kill-types.ts';

const [url = '', provider = ''] = process.argv.slice(2);
const events = new Events();
const { sources, dataTypes = [] } = killConfig(provider);
const db = new Database({ url, events, applicationName: 'pgfresh test worker' });
const worker = new Worker({ db, url, listenUrl: url, events, sources, dataTypes, concurrency: 100, drainMs: 5_000 });
const asked = once(process, 'SIGTERM');
await worker.start();
process.stdout.write('started\n');
await asked;
await worker.stop();
await db.close();
