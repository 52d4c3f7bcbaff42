import pg from 'pg';
import { PgfreshError, problemOf } from '../errors/index.ts';
import { pause } from '../lifecycle/index.ts';
import { failureOf, type Failure } from './failure.ts';
import { codedOr, send, type Queryable, type Statement } from './query.ts';

export interface TransactionOptions {
  /** How long a statement waits for a lock before it gives up with `lock_timeout`. */
  lockTimeoutMs?: number;
  /** How long a statement may take before it is cancelled; without it, as long as the pool allows. */
  statementTimeoutMs?: number;
  /** Whether a statement may take as long as it needs. */
  unlimited?: boolean;
  /** How often `work` may run in all. */
  attempts?: number;
  /** Whether deferred constraints are checked by each statement, so that it is known which one broke them. */
  immediateConstraints?: boolean;
}

interface Shell {
  connect(): Promise<pg.PoolClient>;
  /** The longest that a transaction may take; not set where the server has no such limit. */
  transactionTimeoutMs(): number | undefined;
  random(): number;
  retried(failure: Failure, attempt: number): void;
}

// Only what PostgreSQL undid by itself, or never got to commit, may be done again without asking anyone.
const repeatable: ReadonlySet<Failure> = new Set(['deadlock', 'serialization', 'connection']);

export async function runTransaction<T>(
  work: (tx: Queryable) => Promise<T>,
  options: TransactionOptions,
  shell: Shell,
): Promise<T> {
  const { attempts = 4 } = options;
  for (let attempt = 1; ; attempt++) {
    try {
      return await runOnce(work, options, shell);
    } catch (error) {
      const failure = failureOf(error);
      if (!repeatable.has(failure) || attempt >= attempts) throw error;
      shell.retried(failure, attempt);
      await pause(10 * 2 ** attempt * shell.random());
    }
  }
}

async function runOnce<T>(work: (tx: Queryable) => Promise<T>, options: TransactionOptions, shell: Shell): Promise<T> {
  const client = await connected(shell);
  let broken: Error | undefined;
  // Without a listener, a connection that dies between two statements would end the process.
  const onError = (error: Error): void => void (broken = error);
  client.on('error', onError);
  const query = async <Row extends object>(statement: Statement, values?: readonly unknown[]): Promise<Row[]> => {
    try {
      return (await send<Row>(client, statement, values, options)).rows;
    } catch (error) {
      throw codedOr(error, 'PGF_DATABASE_LOST');
    }
  };
  try {
    await query(opening(options, shell.transactionTimeoutMs()));
    const result = await work({ query });
    await commit(client, options);
    return result;
  } catch (error) {
    // A server that did not answer would not answer a ROLLBACK; the end of the connection has the same effect.
    if (isLost(error)) broken ??= error;
    else await client.query('rollback').catch((failed: unknown) => (broken ??= failed as Error));
    throw error;
  } finally {
    client.off('error', onError);
    client.release(broken ?? false);
  }
}

/**
 * How long a transaction of ours may wait for its next statement. We never wait for others in one, so only a process that
 * is stuck or suspended takes so long; what it has locked must be free again.
 */
const idleLimitMs = 30_000;

/** Limits of one transaction. Not of the session: behind a pooler that is not ours alone. */
export function transactionLimits(timeoutMs: number | undefined): string[] {
  return [
    `set local idle_in_transaction_session_timeout = ${idleLimitMs}`,
    ...(timeoutMs === undefined
      ? []
      : [`set local transaction_timeout = ${Math.min(Math.round(timeoutMs), 2 ** 31 - 1)}`]),
  ];
}

function opening(options: TransactionOptions, timeoutMs: number | undefined): string {
  const { lockTimeoutMs = 2_000, statementTimeoutMs, unlimited = false, immediateConstraints = false } = options;
  const statements = [
    'begin',
    `set local lock_timeout = ${Math.round(lockTimeoutMs)}`,
    ...transactionLimits(unlimited ? undefined : timeoutMs),
    ...(unlimited ? ['set local statement_timeout = 0'] : []),
    ...(statementTimeoutMs === undefined ? [] : [`set local statement_timeout = ${Math.round(statementTimeoutMs)}`]),
    ...(immediateConstraints ? ['set constraints all immediate'] : []),
  ];
  return statements.join('; ');
}

/** A connection of the pool. Nothing was sent yet, so nothing can have been committed. */
export async function connected(shell: Pick<Shell, 'connect'>): Promise<pg.PoolClient> {
  try {
    return await shell.connect();
  } catch (error) {
    throw codedOr(error, 'PGF_DATABASE_LOST');
  }
}

/** Commits, after a last word if there is one. */
export async function commit(
  client: pg.PoolClient,
  options: { readonly unlimited?: boolean; readonly withinMs?: number },
  last?: string,
): Promise<void> {
  const warnings: string[] = [];
  const onNotice = (notice: { code?: string | undefined; message?: string | undefined }): void => {
    // Not by the severity, which comes in the server's language.
    if (notice.code !== '00000') warnings.push(notice.message ?? 'a warning');
  };
  client.on('notice', onNotice);
  let command: string;
  try {
    const answer = await send(client, last === undefined ? 'commit' : `${last}; commit`, [], options);
    ({ command } = [answer].flat().at(-1)!);
  } catch (error) {
    // Only what PostgreSQL itself answered is certain.
    if (error instanceof pg.DatabaseError && failureOf(error) !== 'connection') throw error;
    throw unknown(problemOf(error), error);
  } finally {
    client.off('notice', onNotice);
  }
  // A transaction that failed earlier and was swallowed by `work` answers a COMMIT with ROLLBACK.
  if (command === 'ROLLBACK') throw new Error('a statement of the transaction had failed, so COMMIT rolled it back');
  // "canceling wait for synchronous replication": committed here, perhaps nowhere else, and reported as a success.
  if (warnings.length > 0) throw unknown(warnings.join('; '));
}

function unknown(problem: string, cause?: unknown): PgfreshError {
  return new PgfreshError('PGF_COMMIT_UNKNOWN', { problem }, { cause });
}

/** Whether the state of the session is unknown. */
export function isLost(error: unknown): error is PgfreshError {
  return error instanceof PgfreshError && (error.code === 'PGF_DATABASE_LOST' || error.code === 'PGF_COMMIT_UNKNOWN');
}
