import { asPgfreshError, problemOf, type PgfreshError } from '../../errors/index.ts';
import type { Events } from '../../events/index.ts';
import { refusalSentences, type RefusalCode } from '../sentences.ts';

export interface ErrorResponse {
  readonly status: number;
  readonly code: RefusalCode;
  readonly message: string;
  readonly next: string;
}

/** An error of `authorize` may have any length, and there is one for each pair of each viewer. */
const maxProblemLength = 500;

/** What a client is told about an error: a fixed sentence. The error itself goes to operators, as an event. */
export function errorResponse(thrown: unknown, events: Events): ErrorResponse {
  const error = asPgfreshError(thrown);
  const code = isRefusal(error.code) ? error.code : 'PGF_LIVE_BUSY';
  const problem = error.message.slice(0, maxProblemLength).replaceAll(/\p{Cc}/gu, '?');
  events.emit({ type: 'gateway.refused', code, problem });
  if (code !== error.code) events.emit({ type: 'gateway.failed', step: 'answer', problem: problemOf(thrown) });
  const { status, message, next } = refusalSentences[code];
  const values = safeValues(error);
  return { status, code, message: fill(message, values), next: fill(next, values) };
}

/** The WebSocket close code for an HTTP status. */
export function closeCode(status: number): number {
  return 4_000 + status;
}

function isRefusal(code: string): code is RefusalCode {
  return Object.hasOwn(refusalSentences, code);
}

// The values of an error with a cause may repeat what the database or a function of the configuration said.
function safeValues({ cause, values }: PgfreshError): PgfreshError['values'] {
  return cause === undefined ? values : {};
}

function fill(sentence: string, values: PgfreshError['values']): string {
  return sentence.replace(/\{(\w+)\}/g, (_, name: string) => String(values[name] ?? '…'));
}
