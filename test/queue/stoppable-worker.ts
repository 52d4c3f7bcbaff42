/**
 * A real worker process for tests that stop it: registers, claims one job and prints it; for every line on its input it
 * completes the job and prints what that did. Ends with its input.
 */
import { createInterface } from 'node:readline';
import { Database } from '../../src/database/index.ts';
import { Events } from '../../src/events/index.ts';
import { Queue } from '../../src/queue/index.ts';

const say = (what: object): void => void process.stdout.write(`${JSON.stringify(what)}\n`);

const [url = ''] = process.argv.slice(2);
const database = new Database({ url, events: new Events(), applicationName: 'pgfresh test worker', poolSize: 1 });
const queue = new Queue();
const [row] = await database.query<{ id: number }>(`select pgfresh_engine.register_process('worker', $1::text) as id`, [
  'stoppable',
]);
const { jobs } = await queue.claim(database, { worker: row!.id, limit: 1 });
say({ job: jobs[0] });
for await (const _line of createInterface({ input: process.stdin })) {
  say({ done: await queue.complete(database, [{ ...jobs[0]!, bytes: 5 }]) });
}
await database.close();
