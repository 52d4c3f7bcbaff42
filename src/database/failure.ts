import { PgfreshError } from '../errors/index.ts';

/** What a failed statement means for its caller. */
export type Failure =
  | 'unique'
  | 'foreign_key'
  | 'constraint'
  | 'invalid_data'
  | 'deadlock'
  | 'serialization'
  | 'lock_timeout'
  | 'statement_timeout'
  | 'connection'
  | 'readonly'
  | 'permission'
  | 'login'
  | 'missing_object'
  | 'resources'
  | 'raised'
  | 'other';

const bySqlState: Readonly<Record<string, Failure>> = {
  '23505': 'unique',
  '23P01': 'unique',
  '23503': 'foreign_key',
  '40P01': 'deadlock',
  '40001': 'serialization',
  '55P03': 'lock_timeout',
  '57014': 'statement_timeout',
  // Transaction timeout.
  '25P04': 'statement_timeout',
  '25006': 'readonly',
  '42501': 'permission',
  '42P01': 'missing_object',
  '42883': 'missing_object',
  '42703': 'missing_object',
  '3F000': 'missing_object',
  '3D000': 'login',
  // The server is starting, stopping or terminated this session; a new connection may succeed soon.
  '57P01': 'connection',
  '57P02': 'connection',
  '57P03': 'connection',
  '57P05': 'connection',
  // Idle in transaction for too long.
  '25P03': 'connection',
};

const byClass: Readonly<Record<string, Failure>> = {
  '08': 'connection',
  '22': 'invalid_data',
  '23': 'constraint',
  '28': 'login',
  '53': 'resources',
  P0: 'raised',
};

const socketCodes = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'ECONNABORTED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ETIMEDOUT',
  'EPIPE',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOENT',
]);

// pg reports a dead socket as a plain Error without a code.
const deadConnection =
  /connection terminated|query read timeout|connection error and is not queryable|client was closed|timeout exceeded when trying to connect|cannot use a pool after/i;

/** Classifies an error thrown by `pg`, or one that wraps it. */
export function failureOf(thrown: unknown): Failure {
  // By its code: the message repeats that of `pg`, and would turn an unconfirmed COMMIT into a lost connection.
  if (thrown instanceof PgfreshError) return thrown.code === 'PGF_DATABASE_LOST' ? 'connection' : 'other';
  const code = codeOf(thrown);
  if (code !== undefined) {
    // First, because EPIPE looks like a SQLSTATE.
    if (socketCodes.has(code)) return 'connection';
    if (/^[0-9A-Z]{5}$/.test(code)) return bySqlState[code] ?? byClass[code.slice(0, 2)] ?? 'other';
  }
  if (thrown instanceof Error && deadConnection.test(thrown.message)) return 'connection';
  return 'other';
}

/** Whether a statement exceeded its lock or statement timeout. */
export function isTimeout(thrown: unknown): boolean {
  const failure = failureOf(thrown);
  return failure === 'lock_timeout' || failure === 'statement_timeout';
}

/** The SQLSTATE or the system's error code of a thrown value. */
export function codeOf(thrown: unknown): string | undefined {
  if (thrown instanceof AggregateError && thrown.errors.length > 0) return codeOf(thrown.errors[0]);
  if (typeof thrown !== 'object' || thrown === null || !('code' in thrown)) return undefined;
  return typeof thrown.code === 'string' ? thrown.code : undefined;
}
