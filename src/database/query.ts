import type pg from 'pg';
import { errorTable, PgfreshError, problemOf } from '../errors/index.ts';
import { codeOf, failureOf } from './failure.ts';
import { storableValue } from './storable-text.ts';

/** A statement's text, or with a name to prepare it once per connection. */
export type Statement = string | { readonly name: string; readonly text: string };

export interface Queryable {
  query<Row extends object = Record<string, unknown>>(
    statement: Statement,
    values?: readonly unknown[],
  ): Promise<Row[]>;
}

/** Lock timeout and statement timeout of one statement. */
export interface StatementLimits {
  readonly lockTimeoutMs: number;
  readonly statementTimeoutMs: number;
}

/** A pool that can limit single statements further. */
export interface LimitedQueryable extends Queryable {
  query<Row extends object = Record<string, unknown>>(
    statement: Statement,
    values?: readonly unknown[],
    limits?: StatementLimits,
  ): Promise<Row[]>;
}

/** The only path to PostgreSQL. Sends one statement, optionally with its own timeout or none. */
export function send<Row extends object>(
  client: Pick<pg.ClientBase, 'query'>,
  statement: Statement,
  values: readonly unknown[] = [],
  { unlimited = false, withinMs }: { unlimited?: boolean; withinMs?: number } = {},
): Promise<pg.QueryResult<Row>> {
  const config = typeof statement === 'string' ? { text: statement } : statement;
  // The longest timer; pg has no other way to disable the timeout of one statement.
  const timeoutMs = unlimited ? 2 ** 31 - 1 : withinMs;
  const timeout = timeoutMs === undefined ? {} : { query_timeout: timeoutMs };
  return client.query<Row>({ ...config, ...timeout, values: values.map(storableValue) });
}

/** A lost connection or an error raised by our functions becomes a coded error; the rest stays PostgreSQL's own. */
export function codedOr(error: unknown, lost: 'PGF_DATABASE_LOST' | 'PGF_COMMIT_UNKNOWN'): unknown {
  const problem = problemOf(error);
  if (failureOf(error) === 'connection') return new PgfreshError(lost, { problem }, { cause: error });
  const [, code, sentence] = codeOf(error) === refusal ? (/^(PGF_\w+): (.*)$/.exec(problem) ?? []) : [];
  if (code === undefined || !(code in errorTable)) return error;
  const next = (error as { hint?: string }).hint;
  return new PgfreshError(code as RefusalCode, { problem: sentence! }, { cause: error, next });
}

/** The SQLSTATE of all errors that our functions raise. */
const refusal = 'PGF01';
type RefusalCode =
  | 'PGF_ARGUMENT_INVALID'
  | 'PGF_JOB_INVALID'
  | 'PGF_JOB_RIGHT'
  | 'PGF_JOB_UNKNOWN'
  | 'PGF_KEY_INVALID'
  | 'PGF_KEY_UNKNOWN'
  | 'PGF_REGISTRY_INVALID'
  | 'PGF_STANDBY'
  | 'PGF_TOO_MANY_CALLS'
  | 'PGF_TOO_MANY_SUBSCRIPTIONS'
  | 'PGF_VIEWER_OTHER'
  | 'PGF_VIEWER_UNKNOWN'
  | 'PGF_TYPE_UNKNOWN'
  | 'PGF_SOURCE_UNKNOWN'
  | 'PGF_RUN_UNKNOWN'
  | 'PGF_LEASE_LOST'
  | 'PGF_LIVE_ROLE'
  | 'PGF_LOCK_LOST';
