/**
 * A real process for tests that stop it: takes the lease and says so. Of the lines on its input, `write` writes a row in
 * a fenced transaction, `renew` renews, and `end` ends the work; it prints what came of each.
 */
import { createInterface } from 'node:readline';
import { Database } from '../../src/database/index.ts';
import { PgfreshError } from '../../src/errors/index.ts';
import { Events } from '../../src/events/index.ts';
import { withLease } from '../../src/schedule/index.ts';

const say = (what: object): void => void process.stdout.write(`${JSON.stringify(what)}\n`);
const codeOf = (error: unknown): unknown => (error instanceof PgfreshError ? error.code : String(error));
const told = (work: Promise<unknown>): Promise<unknown> => work.then((done) => done ?? 'done', codeOf);

const [url = '', name = '', lease = ''] = process.argv.slice(2);
const db = new Database({ url, events: new Events(), applicationName: 'pgfresh test lease', poolSize: 2 });
const input = createInterface({ input: process.stdin });
const ended = await told(
  withLease(name, { db, lease }, async ({ signal, token, fence }) => {
    say({ token });
    signal.addEventListener('abort', () => say({ aborted: codeOf(signal.reason) }));
    for await (const line of input) {
      if (line === 'end') break;
      if (line === 'renew') {
        const renew = 'select reason from pgfresh.renew_refresh_lock($1::text, $2::bigint)';
        say({ renew: await told(db.query(renew, [name, token])) });
      } else {
        const write = db.transact('write', async (tx) => {
          await tx.query('insert into written values ($1::bigint)', [token]);
          await fence(tx);
        });
        say({ write: await told(write) });
      }
    }
    return 'worked';
  }),
);
say({ ended });
input.close();
await db.close();
