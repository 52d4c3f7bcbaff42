import { asPgfreshError, problemOf, type ErrorCode, type PgfreshError } from '../errors/index.ts';
import type { Events } from '../events/index.ts';

/** The HTTP status of each refusal; a WebSocket that ends by it is closed with 4000 more. */
const statuses: Partial<Record<ErrorCode, 400 | 401 | 403 | 404 | 408 | 413 | 429 | 503>> = {
  PGF_LIVE_TOKEN: 401,
  PGF_LIVE_ORIGIN: 403,
  PGF_LIVE_FORBIDDEN: 403,
  PGF_LIVE_PRIVATE: 403,
  PGF_LIVE_ROLE: 403,
  PGF_LIVE_UNDECIDED: 503,
  PGF_LIVE_PROTOCOL: 400,
  PGF_LIVE_MESSAGE: 400,
  PGF_LIVE_TOO_LARGE: 413,
  PGF_LIVE_TOO_FAST: 429,
  PGF_LIVE_TOO_MANY_CONNECTIONS: 429,
  PGF_LIVE_TOO_MANY_PAIRS: 429,
  PGF_LIVE_TOO_MANY_NEW_PAIRS: 429,
  PGF_LIVE_TOO_MANY_REFRESHES: 429,
  PGF_LIVE_SLOW: 408,
  PGF_LIVE_BUSY: 503,
  PGF_LIVE_STOPPING: 503,
  PGF_LIVE_SESSION: 404,
  PGF_KEY_INVALID: 400,
  PGF_KEY_UNKNOWN: 404,
  PGF_TYPE_UNKNOWN: 404,
};

export interface Refused {
  readonly code: ErrorCode;
  readonly message: string;
  readonly next: string;
}

/** What a client is told about an error. What it can do nothing about is for the log, and told as a busy server. */
export function refuse(thrown: unknown, events: Events): Refused & { readonly status: number } {
  const error = asPgfreshError(thrown);
  const status = statuses[error.code];
  events.emit({ type: 'gateway.refused', code: status === undefined ? 'PGF_LIVE_BUSY' : error.code });
  if (status !== undefined) return { status, ...worded(error) };
  events.emit({ type: 'gateway.failed', step: 'answer', problem: problemOf(thrown) });
  const message = 'The server can not answer this moment; its log says why.';
  return { status: 503, code: 'PGF_LIVE_BUSY', message, next: 'Ask again in a few seconds.' };
}

export function closeCode(status: number): number {
  return 4_000 + status;
}

function worded({ code, message, next }: PgfreshError): Refused {
  return { code, message, next };
}
