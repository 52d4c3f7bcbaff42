import { EventEmitter } from 'node:events';
import { beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { Database, Queryable } from '../../src/database/index.ts';
import { runTransaction } from '../../src/database/transaction.ts';
import { Events } from '../../src/events/index.ts';
import { createDatabase, openDatabase } from '../harness/database.ts';
import { Proxy } from '../harness/proxy.ts';
import { seededRandom } from '../harness/random.ts';

let url = '';
let database: Database;
const events = new Events();
const retried: string[] = [];
events.on('transaction.retried', ({ failure, attempt }) => retried.push(`${failure} ${attempt}`));

beforeAll(async () => {
  url = await createDatabase();
  database = openDatabase(url, { events, random: seededRandom(1) });
  await database.query('create table account (name text primary key, amount int not null)');
});
beforeEach(async () => {
  retried.length = 0;
  await database.query('truncate account');
  await database.query(`insert into account values ('a', 0), ('b', 0)`);
});

async function amounts(): Promise<number[]> {
  const rows = await database.query<{ amount: number }>('select amount from account order by name');
  return rows.map((row) => row.amount);
}

const add = (tx: Queryable, name: string) =>
  tx.query('update account set amount = amount + 1 where name = $1::text', [name]);

it('commits what was done and returns the result', async () => {
  expect(await database.transact('test', async (tx) => (await add(tx, 'a'), 'done'))).toBe('done');
  expect(await amounts()).toEqual([1, 0]);
});

it('undoes everything when the work throws, and gives the connection back', async () => {
  for (let round = 0; round < 30; round++) {
    await expect(
      database.transact('test', async (tx) => {
        await add(tx, 'a');
        throw new Error('changed my mind');
      }),
    ).rejects.toThrow('changed my mind');
  }
  expect(await amounts()).toEqual([0, 0]);
  expect(retried).toEqual([]);
});

it('does not take a swallowed failure for a success', async () => {
  const work = database.transact('test', async (tx) => {
    await add(tx, 'a');
    await tx.query('select 1 / (select 0)').catch(() => {});
  });
  await expect(work).rejects.toThrow('COMMIT rolled it back');
  expect(await amounts()).toEqual([0, 0]);
});

it('calls a COMMIT unknown that PostgreSQL answers with a warning', async () => {
  await database.query(`create table warned (id int)`);
  await database.query(
    `create function warn() returns trigger language plpgsql as $$ begin raise warning 'only here'; return null; end $$`,
  );
  await database.query(
    `create constraint trigger warn after insert on warned deferrable initially deferred for each row execute function warn()`,
  );
  let runs = 0;
  const work = database.transact('test', async (tx) => (runs++, tx.query('insert into warned values (1)')));
  await expect(work).rejects.toMatchObject({
    code: 'PGF_COMMIT_UNKNOWN',
    message: expect.stringContaining('only here') as string,
  });
  expect([runs, await database.query('select * from warned')]).toEqual([1, [{ id: 1 }]]);
});

it('knows what PostgreSQL itself says against a COMMIT', async () => {
  await database.query('create table late (id int primary key deferrable initially deferred)');
  const work = database.transact('test', (tx) => tx.query('insert into late values (1), (1)'));
  await expect(work).rejects.toMatchObject({ code: '23505' });
});

it.each([
  ['in an unfamiliar way', 'the sky fell'],
  ['with its connection', 'Connection terminated unexpectedly'],
])('calls a COMMIT unknown that fails %s, and does not repeat it', async (_, message) => {
  let released: unknown;
  let runs = 0;
  const client = Object.assign(new EventEmitter(), {
    query: async ({ text }: { text: string }) => {
      if (text === 'commit') throw new Error(message);
      return { rows: [], command: '' };
    },
    release: (broken: unknown) => (released = broken),
  });
  const work = runTransaction(
    async () => void runs++,
    {},
    { connect: async () => client as never, transactionTimeoutMs: () => undefined, random: () => 0, retried: () => {} },
  );
  await expect(work).rejects.toMatchObject({ code: 'PGF_COMMIT_UNKNOWN' });
  expect(released).toBeInstanceOf(Error);
  expect(runs).toBe(1);
});

it('repeats a real deadlock until both transactions are in', async () => {
  const both = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const work = async (first: string, second: string, mine: number) =>
    database.transact(
      'test',
      async (tx) => {
        await add(tx, first);
        both[mine]!.resolve();
        await both[1 - mine]!.promise;
        await add(tx, second);
      },
      { lockTimeoutMs: 20_000 },
    );
  await Promise.all([work('a', 'b', 0), work('b', 'a', 1)]);
  expect(await amounts()).toEqual([2, 2]);
  expect(retried).toEqual(['deadlock 1']);
});

it('gives up after the given attempts', async () => {
  let runs = 0;
  const work = database.transact(
    'test',
    async (tx) => (runs++, tx.query(`do $$ begin raise serialization_failure; end $$`)),
    { attempts: 3 },
  );
  await expect(work).rejects.toMatchObject({ code: '40001' });
  expect([runs, ...retried]).toEqual([3, 'serialization 1', 'serialization 2']);
});

it.each(['select 1 / (select 0)', 'select * from nowhere', `insert into account values ('a', 1)`])(
  'does not repeat %s',
  async (text) => {
    await expect(database.transact('test', (tx) => tx.query(text))).rejects.toThrow();
    expect(retried).toEqual([]);
  },
);

it('stops waiting for a lock', async () => {
  await database.transact('test', async (tx) => {
    await add(tx, 'a');
    await expect(database.transact('other', (other) => add(other, 'a'), { lockTimeoutMs: 20 })).rejects.toMatchObject({
      code: '55P03',
    });
  });
});

it('cancels a statement that runs too long', async () => {
  const hasty = openDatabase(url, { statementTimeoutMs: 200 });
  await expect(hasty.query('select pg_sleep(30)')).rejects.toMatchObject({ code: '57014' });
});

it('is named in pg_stat_activity', async () => {
  const [row] = await database.query<{ name: string }>(
    'select application_name as name from pg_stat_activity where pid = pg_backend_pid()',
  );
  expect(row).toEqual({ name: 'pgfresh test' });
});

async function proxied(): Promise<{ proxy: Proxy; far: Database }> {
  const { proxy, url: proxyUrl } = await Proxy.before(url);
  onTestFinished(() => proxy.close());
  return { proxy, far: openDatabase(proxyUrl, { events, random: seededRandom(2) }) };
}

describe('a lost connection', () => {
  it('before the COMMIT is repeated: nothing was done', async () => {
    const { proxy, far } = await proxied();
    let runs = 0;
    await far.transact('test', async (tx) => {
      await add(tx, 'a');
      if (++runs === 1) proxy.cut();
      await add(tx, 'b');
    });
    expect(await amounts()).toEqual([1, 1]);
    expect(retried).toEqual(['connection 1']);
    await far.close();
  });

  it.each(['to server', 'to client'] as const)(
    'at the COMMIT, on its way %s, is unknown and never repeated',
    async (direction) => {
      const { proxy, far } = await proxied();
      let runs = 0;
      const work = far.transact('test', async (tx) => {
        runs++;
        await add(tx, 'a');
        let sent = false;
        proxy.judge = (chunk, way) => {
          sent ||= way === 'to server' && chunk.includes('commit');
          return sent && way === direction ? 'cut' : 'pass';
        };
      });
      await expect(work).rejects.toMatchObject({ code: 'PGF_COMMIT_UNKNOWN' });
      expect(runs).toBe(1);
      await far.close();
      // The server may still be ending the session whose client is gone; taking its row lock waits for that.
      await database.query('select from account for update');
      expect(await amounts()).toEqual([direction === 'to server' ? 0 : 1, 0]);
    },
  );

  it('while idle is told, and the next query works', async () => {
    const { proxy, far } = await proxied();
    const lost = Promise.withResolvers<void>();
    events.on('database.connection_lost', () => lost.resolve());
    await far.query('select 1');
    proxy.cut();
    await lost.promise;
    expect(await far.query('select 1 as one')).toEqual([{ one: 1 }]);
    await far.close();
  });

  it('of a plain query leaves open whether it was committed', async () => {
    const { proxy, far } = await proxied();
    await far.query('select 1');
    proxy.judge = (_, direction) => (direction === 'to client' ? 'cut' : 'pass');
    await expect(far.query(`insert into account values ('c', 0)`)).rejects.toMatchObject({
      code: 'PGF_COMMIT_UNKNOWN',
    });
    await far.close();
    expect(await database.query(`select from account where name = 'c'`)).toHaveLength(1);
  });

  it('to be is certain: nothing was sent', async () => {
    const { proxy, far } = await proxied();
    proxy.judge = () => 'cut';
    await expect(far.query('select 1')).rejects.toMatchObject({ code: 'PGF_DATABASE_LOST' });
    await far.close();
  });
});

describe('a server that does not answer', () => {
  it('is given up some time after it should have cancelled the statement', async () => {
    const { proxy, url: proxyUrl } = await Proxy.before(url);
    onTestFinished(() => proxy.close());
    const far = openDatabase(proxyUrl, { statementTimeoutMs: 20, silenceMs: 50 });
    await far.query('select 1');
    proxy.judge = () => 'hold';
    await expect(far.query('select 2')).rejects.toMatchObject({ code: 'PGF_COMMIT_UNKNOWN' });
    proxy.judge = () => 'pass';
    expect(await far.query('select 3 as three')).toEqual([{ three: 3 }]);
    proxy.judge = () => 'hold';
    await expect(far.transact('test', (tx) => tx.query('select 4'), { attempts: 1 })).rejects.toMatchObject({
      code: 'PGF_DATABASE_LOST',
    });
    await far.close();
  });

  it('does not keep the pool from closing', async () => {
    const { proxy, url: proxyUrl } = await Proxy.before(url);
    onTestFinished(() => proxy.close());
    const far = openDatabase(proxyUrl, { silenceMs: 100 });
    await Promise.all([far.query('select 1'), far.query('select 1')]);
    const sent = Promise.withResolvers<void>();
    proxy.judge = () => (sent.resolve(), 'hold');
    const fate = far.query('select 2').catch((error: unknown) => error);
    await sent.promise;
    await far.close();
    expect(await fate).toMatchObject({ code: 'PGF_COMMIT_UNKNOWN' });
  });
});

it('runs 5: the server soon notices that a session of ours is gone, also after code of others ran in it', async () => {
  const pool = openDatabase(url, { poolSize: 1, statementTimeoutMs: 3_000, pipelined: true });
  const settings = `select current_setting('statement_timeout') as statement, current_setting('tcp_user_timeout') as silence,
    current_setting('tcp_keepalives_idle') as idle`;
  const [before] = await pool.query<Record<string, string>>(settings);
  expect(before).toMatchObject({ statement: '3s', idle: '10' });
  // Only Linux can do this.
  expect(before!['silence']).toBe(process.platform === 'linux' ? '20000' : '0');
  await pool.host({
    statement: 'select set_config(name, $1, false) from unnest($2::text[]) as name',
    values: ['0', ['statement_timeout', 'tcp_user_timeout', 'tcp_keepalives_idle']],
    timeoutMs: 1_000,
    isKept: () => true,
  });
  expect(await pool.query(settings)).toEqual([before]);
});

describe('truth 17: every transaction has limits of its own', () => {
  const limits = `select current_setting('idle_in_transaction_session_timeout') as idle, current_setting('transaction_timeout', true) as whole,
    current_setting('server_version_num')::int >= 170000 as knows`;
  interface Limits {
    readonly idle: string;
    readonly whole: string | null;
    readonly knows: boolean;
  }

  it('thirty seconds without a word, ten times the limit of a statement in all, and none afterwards', async () => {
    const limited = openDatabase(url, { poolSize: 1, statementTimeoutMs: 2_000 });
    const [inside] = await limited.transact('test', (tx) => tx.query<Limits>(limits));
    expect(inside).toEqual({ idle: '30s', whole: inside!.knows ? '20s' : null, knows: inside!.knows });
    const [outside] = await limited.query<Limits>(limits);
    expect(outside).toMatchObject({ idle: '0', whole: inside!.knows ? '0' : null });
  });

  it('what may take as long as it needs is limited in its silence only', async () => {
    const [inside] = await database.transact('test', (tx) => tx.query<Limits>(limits), { unlimited: true });
    expect(inside).toMatchObject({ idle: '30s', whole: inside!.knows ? '0' : null });
  });

  it('code of others has its own limit, some time to end, and a statement more', async () => {
    const guests = openDatabase(url, { poolSize: 1, statementTimeoutMs: 3_000, pipelined: true });
    const [inside] = await guests.host<Limits>({
      statement: limits,
      values: [],
      timeoutMs: 60_000,
      graceMs: 1_000,
      isKept: () => true,
    });
    expect(inside).toMatchObject({ idle: '30s', whole: inside!.knows ? '65s' : null });
  });

  it.each([false, true])('a statement with limits of its own has these too, pipelined: %s', async (pipelined) => {
    const limited = openDatabase(url, { poolSize: 1, pipelined, silenceMs: 4_000 });
    const [inside] = await limited.query<Limits>(limits, [], { lockTimeoutMs: 100, statementTimeoutMs: 1_000 });
    expect(inside).toMatchObject({ idle: '30s', whole: inside!.knows ? '5s' : null });
    expect(await limited.query<Limits>(limits)).toMatchObject([{ idle: '0', whole: inside!.knows ? '0' : null }]);
  });

  it('a session that was ended for its silence is a lost connection, and the work is done again', async () => {
    let runs = 0;
    await database.transact('test', async (tx) => {
      await add(tx, 'a');
      if (++runs > 1) return;
      await tx.query(`set local idle_in_transaction_session_timeout = 1`);
      const idle = async (): Promise<number> => {
        const [row] = await database.query<{ idle: number }>(
          `select count(*)::int as idle from pg_stat_activity where datname = current_database() and state = 'idle in transaction'`,
        );
        return row!.idle;
      };
      await expect.poll(idle).toBe(0);
      await add(tx, 'b');
    });
    expect([runs, retried, await amounts()]).toEqual([2, ['connection 1'], [1, 0]]);
  });
});
