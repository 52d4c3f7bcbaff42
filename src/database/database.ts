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
  /** Shown in pg_stat_activity, so that a DBA can identify the session. */
  applicationName: string;
  poolSize?: number;
  statementTimeoutMs?: number;
  /** How long a server may stay silent after it should have cancelled a statement or closed the connection. */
  silenceMs?: number;
  /** Whether a connection sends statements without waiting for earlier answers. */
  pipelined?: boolean;
  /** Whether users' code sends the statements: then session settings are reset after each use. */
  isForUsers?: boolean;
  /** Source of jitter between retries, in [0, 1). */
  random?: () => number;
}

// Counts and ids stay far below 2^53, and callers expect a number.
const numbers = new pg.TypeOverrides();
const bigint = 20;
const bigintArray = 1016;
numbers.setTypeParser(bigint, Number);
numbers.setTypeParser(bigintArray, (text) => text.slice(1, -1).split(',').filter(Boolean).map(Number));

/** A transaction may take as long as this many statements at their own limit. */
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
  /** Whether the server can limit a whole transaction (17 and later); known once a session is open. */
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
      // Keeps a session for the work of every minute: a new one would have to plan all statements first.
      idleTimeoutMillis: 90_000,
      query_timeout: statementTimeoutMs + silenceMs,
      stream: () => this.#newSocket(),
      // As a statement, not as a start-up parameter: poolers refuse unknown parameters.
      // The pool waits for it, although its types do not say so.
      onConnect: (client) => this.#prepare(client) as unknown as void,
    });
    // An idle connection that dies must not end the process; the pool opens another on demand.
    this.#pool.on('error', (error) => this.#connectionLost(error));
  }

  /** Runs a statement that commits by itself. For limits, use a `pipelined` pool. */
  async query<Row extends object>(
    statement: Statement,
    values?: readonly unknown[],
    limits?: StatementLimits,
  ): Promise<Row[]> {
    const client = await connected(this.#pool);
    let failed = false;
    // The statement fails too; without a listener the error would end the process.
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
      // A text with several statements has several results.
      const answers = [await send<Row>(client, statement, values)].flat();
      // The next user of the connection must not run inside a transaction that was left open.
      if (!isIdle(client)) throw new PgfreshError('PGF_TRANSACTION_LEFT', {});
      if (this.#isForUsers && mayHaveSet(statement, answers)) await this.#reset(client).catch(() => (failed = true));
      return answers.length === 1 ? answers[0]!.rows : answers.flatMap(({ rows }) => rows);
    } catch (error) {
      // Keep a session that stays within its limits: a new one is slower, because it plans everything first.
      failed = !(limits && isTimeout(error));
      throw codedOr(error, 'PGF_COMMIT_UNKNOWN');
    } finally {
      client.off('error', onError);
      // A text with several statements may have failed between its BEGIN and its COMMIT.
      client.release(failed);
    }
  }

  /**
   * Runs `work` in a transaction and returns its result once the COMMIT is confirmed.
   * `work` runs again after a deadlock, a serialization failure or a connection lost before the COMMIT,
   * so it must have no effect outside the transaction.
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
   * Runs users' code once, in a transaction of its own. Use a separate, `pipelined` pool: its sessions
   * lose their prepared statements.
   */
  host<Row extends object>(guest: Guest<Row>): Promise<Row[]> {
    return runGuest(guest, {
      connect: () => this.#pool.connect(),
      end: (pid, how) => this.#endSession(pid, how),
      statementTimeoutMs: this.#statementTimeoutMs,
      hasTransactionTimeout: () => this.#hasTransactionTimeout,
    });
  }

  /** Waits briefly for statements under way. */
  close(): Promise<void> {
    this.#closing ??= this.#end();
    return this.#closing;
  }

  async #end(): Promise<void> {
    const ended = this.#pool.end().then(() =>
      // The pool does not wait for idle connections to close.
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

  /** Resets the session to its initial state and role. */
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

/** Whether the connection has no open transaction. The function is missing in pg's types. */
function isIdle(client: pg.PoolClient): boolean {
  return (client as unknown as { getTransactionStatus(): string }).getTransactionStatus() === 'I';
}

function mayHaveSet(statement: Statement, answers: readonly pg.QueryResult[]): boolean {
  const text = typeof statement === 'string' ? statement : statement.text;
  return answers.some(({ command }) => command === 'SET') || /set_config/i.test(text);
}
