import type pg from 'pg';
import { isTimeout } from './failure.ts';
import { send, type Statement, type StatementLimits } from './query.ts';
import { transactionLimits } from './transaction.ts';

interface Sending {
  /** Whether the connection sends statements without waiting for earlier answers. */
  readonly isPipelined: boolean;
  /** How long the server may stay silent after it should have cancelled the statement. */
  readonly silenceMs: number;
  /** Whether the server can limit a whole transaction. */
  readonly hasTransactionTimeout: boolean;
}

/**
 * Sends a statement with its own limits. They are set per transaction: behind a pooler, sessions are shared.
 * On a pipelined connection everything is sent together, so that the limits cost no round trip.
 */
export async function sendLimited<Row extends object>(
  client: Pick<pg.ClientBase, 'query'>,
  statement: Statement,
  values: readonly unknown[] | undefined,
  { lockTimeoutMs, statementTimeoutMs }: StatementLimits,
  { isPipelined, silenceMs, hasTransactionTimeout }: Sending,
): Promise<Row[]> {
  const within = { withinMs: statementTimeoutMs + silenceMs };
  const opening = [
    'begin',
    `set local lock_timeout = ${Math.round(lockTimeoutMs)}`,
    `set local statement_timeout = ${Math.round(statementTimeoutMs)}`,
    ...transactionLimits(hasTransactionTimeout ? within.withinMs : undefined),
  ];
  const begin = (): Promise<unknown> => send(client, opening.join('; '), [], within);
  const run = (): Promise<pg.QueryResult<Row>> => send<Row>(client, statement, values, within);
  const commit = (): Promise<unknown> => send(client, 'commit', [], within);
  try {
    if (isPipelined) return (await Promise.all([begin(), run(), commit()]))[1].rows;
    await begin();
    const { rows } = await run();
    await commit();
    return rows;
  } catch (error) {
    // Users' code may have left session locks.
    if (isTimeout(error)) await send(client, 'rollback; select pg_catalog.pg_advisory_unlock_all()', [], within);
    throw error;
  }
}
