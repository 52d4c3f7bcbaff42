import pg from 'pg';
import { PgfreshError, problemOf } from '../errors/index.ts';
import { pause } from '../lifecycle/index.ts';
import { failureOf, type Failure } from './failure.ts';
import { codedOr, send, type Queryable, type Statement } from './query.ts';

export interface TransactionOptions {
  /** Lock timeout of a statement, which then fails with `lock_timeout`. */
  lockTimeoutMs?: number;
  /** Statement timeout; default: that of the pool. */
  statementTimeoutMs?: number;
  /** Disables the statement timeout. */
  unlimited?: boolean;
  /** Maximum number of times `work` may run. */
  attempts?: number;
  /** Whether each statement checks deferred constraints, to tell which one violated them. */
  immediateConstraints?: boolean;
}

interface Shell {
  connect(): Promise<pg.PoolClient>;
  /** Transaction timeout; not set if the server has no such limit. */
  transactionTimeoutMs(): number | undefined;
  random(): number;
  retried(failure: Failure, attempt: number): void;
}

// Safe to repeat: PostgreSQL rolled these back, or never began to commit.
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
    // A server that did not answer would not answer a ROLLBACK either; closing the connection has the same effect.
    if (isLost(error)) broken ??= error;
    else await client.query('rollback').catch((failed: unknown) => (broken ??= failed as Error));
    throw error;
  } finally {
    client.off('error', onError);
    client.release(broken ?? false);
  }
}

/**
 * Idle timeout within our transactions. We never wait for others in one, so only a process that
 * is stuck or suspended takes so long, and its locks must be released.
 */
const idleLimitMs = 30_000;

/** Limits of one transaction. Not of the session, which is shared behind a pooler. */
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

/** A connection of the pool. Nothing was sent yet, so nothing can be committed. */
export async function connected(shell: Pick<Shell, 'connect'>): Promise<pg.PoolClient> {
  try {
    return await shell.connect();
  } catch (error) {
    throw codedOr(error, 'PGF_DATABASE_LOST');
  }
}

/** Commits, after a last statement if there is one. */
export async function commit(
  client: pg.PoolClient,
  options: { readonly unlimited?: boolean; readonly withinMs?: number },
  last?: string,
): Promise<void> {
  const warnings: string[] = [];
  const onNotice = (notice: { code?: string | undefined; message?: string | undefined }): void => {
    // Not by the severity, which is in the server's language.
    if (notice.code !== '00000') warnings.push(notice.message ?? 'a warning');
  };
  client.on('notice', onNotice);
  let command: string;
  try {
    const answer = await send(client, last === undefined ? 'commit' : `${last}; commit`, [], options);
    ({ command } = [answer].flat().at(-1)!);
  } catch (error) {
    // Only an answer of PostgreSQL itself is certain.
    if (error instanceof pg.DatabaseError && failureOf(error) !== 'connection') throw error;
    throw unknown(problemOf(error), error);
  } finally {
    client.off('notice', onNotice);
  }
  // If `work` swallowed an error of the transaction, COMMIT answers ROLLBACK.
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
