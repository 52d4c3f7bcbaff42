/** A real scheduler process for tests that kill it: `scheduler-process.ts <database>`. Ends by SIGTERM. */
import { once } from 'node:events';
import { Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { Scheduler } from '../../src/schedule/index.ts';

const [url = ''] = process.argv.slice(2);
const events = new Events();
const db = new Database({ url, events, applicationName: 'pgfresh test scheduler' });
const handlers = new Map([['count', () => ({ success: true, message: 'counted' })]]);
const scheduler = new Scheduler({ db, url, listenUrl: url, events, handlers, concurrency: 5, drainMs: 5_000 });
const asked = once(process, 'SIGTERM');
await scheduler.start();
process.stdout.write('started\n');
await asked;
await scheduler.stop();
await db.close();
