import { Socket } from 'node:net';
import pg from 'pg';
import { PgfreshError, problemOf } from '../errors/index.ts';
import type { Events } from '../events/index.ts';
import { within } from '../lifecycle/index.ts';
import { clientConfig } from './address.ts';
import { isTimeout } from './failure.ts';
import { runGuest, type Guest } from './guest.ts';
import { sendLimited } from './limited-statement.ts';
import { codedOr, type LimitedQueryable, send, type Queryable, type Statement, type StatementLimits } from './query.ts';
import { sessionSettings } from './session-settings.ts';
import { connected, runTransaction, type TransactionOptions } from './transaction.ts';

export interface DatabaseOptions {
  url: string;
  events: Events;
  /** Shown in pg_stat_activity, so that a DBA knows who asks. */
  applicationName: string;
  poolSize?: number;
  statementTimeoutMs?: number;
  /** How long a server may say nothing, after it should have cancelled a statement or said goodbye. */
  silenceMs?: number;
  /** Whether a connection sends statements without waiting for the answers to those before. */
  pipelined?: boolean;
  /** Whether users' code sends the statements: then what one sets in its session is not for the next one. */
  isForUsers?: boolean;
  /** Source of jitter between retries, in [0, 1). */
  random?: () => number;
}

// Counts and ids stay far below 2^53, and a number is what everybody expects.
const numbers = new pg.TypeOverrides();
const bigint = 20;
const bigintArray = 1016;
numbers.setTypeParser(bigint, Number);
numbers.setTypeParser(bigintArray, (text) => text.slice(1, -1).split(',').filter(Boolean).map(Number));

/** A transaction may take as long as this many statements that just keep to their own limit. */
const statementsPerTransaction = 10;

/** The one pool of a process. */
export class Database implements LimitedQueryable {
  readonly #pool: pg.Pool;
  readonly #sockets = new Set<Socket>();
  readonly #events: Events;
  readonly #random: () => number;
  readonly #silenceMs: number;
  readonly #statementTimeoutMs: number;
  readonly #isPipelined: boolean;
  readonly #isForUsers: boolean;
  readonly #client: pg.ClientConfig;
  /** Whether the server can limit a whole transaction, as it does from 17 on; known once a session is open. */
  #hasTransactionTimeout = false;
  #closing: Promise<void> | undefined;

  constructor(options: DatabaseOptions) {
    const { statementTimeoutMs = 30_000, silenceMs = 5_000, poolSize = 10 } = options;
    this.#silenceMs = silenceMs;
    this.#statementTimeoutMs = Math.round(statementTimeoutMs);
    this.#client = clientConfig(options.url, options.applicationName);
    this.#events = options.events;
    this.#random = options.random ?? Math.random;
    this.#isPipelined = options.pipelined ?? false;
    this.#isForUsers = options.isForUsers ?? false;
    this.#pool = new pg.Pool({
      ...this.#client,
      max: poolSize,
      types: numbers,
      pipeline: this.#isPipelined,
      connectionTimeoutMillis: 10_000,
      // What is done every minute finds a session that knows its statements: a new one plans all of them first.
      idleTimeoutMillis: 90_000,
      query_timeout: statementTimeoutMs + silenceMs,
      stream: () => this.#newSocket(),
      // As a statement, not as a start-up parameter: poolers refuse parameters that they do not know.
      // The pool waits for it, although its types do not say so.
      onConnect: (client) => this.#prepare(client) as unknown as void,
    });
    // An idle connection that dies must not end the process; the pool opens another when it is needed.
    this.#pool.on('error', (error) => this.#connectionLost(error));
  }

  /** Runs a statement, which commits by itself. Use a pool that is `pipelined` for limits. */
  async query<Row extends object>(
    statement: Statement,
    values?: readonly unknown[],
    limits?: StatementLimits,
  ): Promise<Row[]> {
    const client = await connected(this.#pool);
    let failed = false;
    // The statement fails by it too; without a listener it would end the process.
    const onError = (): void => {};
    client.on('error', onError);
    try {
      if (limits) {
        return await sendLimited<Row>(client, statement, values, limits, {
          isPipelined: this.#isPipelined,
          silenceMs: this.#silenceMs,
          hasTransactionTimeout: this.#hasTransactionTimeout,
        });
      }
      // A text of several statements has an answer to each of them.
      const answers = [await send<Row>(client, statement, values)].flat();
      // Whoever gets the connection next must not run inside a transaction that someone has left open.
      if (!isIdle(client)) throw new PgfreshError('PGF_TRANSACTION_LEFT', {});
      if (this.#isForUsers && mayHaveSet(statement, answers)) await this.#reset(client).catch(() => (failed = true));
      return answers.length === 1 ? answers[0]!.rows : answers.flatMap(({ rows }) => rows);
    } catch (error) {
      // A session that keeps to its limits is kept too: a new one plans everything first, and takes longer for it.
      failed = !(limits && isTimeout(error));
      throw codedOr(error, 'PGF_COMMIT_UNKNOWN');
    } finally {
      client.off('error', onError);
      // A text of several statements may have failed between its BEGIN and its COMMIT.
      client.release(failed);
    }
  }

  /**
   * Runs `work` in a transaction and returns what it returned once the COMMIT was confirmed.
   * `work` runs again after a deadlock, a serialization failure or a connection lost before the COMMIT,
   * so it must have no effect outside of the transaction.
   */
  async transact<T>(label: string, work: (tx: Queryable) => Promise<T>, options: TransactionOptions = {}): Promise<T> {
    return runTransaction(work, options, {
      connect: () => this.#pool.connect(),
      transactionTimeoutMs: () =>
        this.#hasTransactionTimeout ? this.#statementTimeoutMs * statementsPerTransaction : undefined,
      random: this.#random,
      retried: (failure, attempt) => this.#events.emit({ type: 'transaction.retried', label, failure, attempt }),
    });
  }

  /**
   * Runs code that is not ours, once, in a transaction of its own. Use a pool of its own for this, which is `pipelined`: sessions
   * lose their prepared statements by it.
   */
  host<Row extends object>(guest: Guest<Row>): Promise<Row[]> {
    return runGuest(guest, {
      connect: () => this.#pool.connect(),
      end: (pid, how) => this.#endSession(pid, how),
      statementTimeoutMs: this.#statementTimeoutMs,
      hasTransactionTimeout: () => this.#hasTransactionTimeout,
    });
  }

  /** Waits for what is under way, but not for long. */
  close(): Promise<void> {
    this.#closing ??= this.#end();
    return this.#closing;
  }

  async #end(): Promise<void> {
    const ended = this.#pool.end().then(() =>
      // The pool does not wait for the goodbye of idle connections.
      Promise.all([...this.#sockets].map((socket) => new Promise((resolve) => socket.once('close', resolve)))),
    );
    await within(this.#silenceMs, ended, () => this.#sockets.forEach((socket) => socket.destroy()));
    await ended;
  }

  async #endSession(pid: number, how: string): Promise<void> {
    const client = new pg.Client({ ...this.#client, connectionTimeoutMillis: 10_000, query_timeout: this.#silenceMs });
    client.on('error', () => {});
    try {
      await client.connect();
      await client.query(`select pg_catalog.${how}($1::int)`, [pid]);
    } catch (error) {
      this.#connectionLost(error as Error);
    } finally {
      await client.end().catch(() => {});
    }
  }

  async #prepare(client: Pick<pg.ClientBase, 'query'>): Promise<void> {
    const answers = (await client.query(
      `${sessionSettings(this.#statementTimeoutMs)}; select pg_catalog.current_setting('transaction_timeout', true) is not null as has`,
    )) as unknown as readonly pg.QueryResult<{ has: boolean }>[];
    this.#hasTransactionTimeout = answers.at(-1)!.rows[0]!.has;
  }

  /** Sets the session as it was when it was new, and its role. */
  async #reset(client: pg.PoolClient): Promise<void> {
    await send(client, `reset session authorization; reset all; ${sessionSettings(this.#statementTimeoutMs)}`);
  }

  #newSocket(): Socket {
    const socket = new Socket();
    this.#sockets.add(socket);
    return socket.once('close', () => this.#sockets.delete(socket));
  }

  #connectionLost(error: Error): void {
    if (!this.#closing) this.#events.emit({ type: 'database.connection_lost', problem: problemOf(error) });
  }
}

/** Whether the server has no transaction open for this connection. Its types do not know the function. */
function isIdle(client: pg.PoolClient): boolean {
  return (client as unknown as { getTransactionStatus(): string }).getTransactionStatus() === 'I';
}

function mayHaveSet(statement: Statement, answers: readonly pg.QueryResult[]): boolean {
  const text = typeof statement === 'string' ? statement : statement.text;
  return answers.some(({ command }) => command === 'SET') || /set_config/i.test(text);
}
