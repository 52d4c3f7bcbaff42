import { PgfreshError } from '../errors/index.ts';
import type { JobResult } from '../config/index.ts';

export type { JobResult };

const expected =
  'expected { success: true or false, message: "a text", details: anything }, of which details may be left out';
const known = ['success', 'message', 'details'];

/** What a handler has returned, if it is of the form that was agreed. Throws PGF_JOB_RESULT, in the words of the function job_result. */
export function readJobResult(value: unknown): JobResult {
  const problem = problemOf(value);
  if (problem !== undefined) throw new PgfreshError('PGF_JOB_RESULT', { problem: `${expected}; ${problem}` });
  const { success, message, details } = value as JobResult;
  return { success, message: message.slice(0, 4_000), ...(details === undefined ? {} : { details }) };
}

function problemOf(value: unknown): string | undefined {
  if (value === undefined || value === null) return `got ${value === null ? 'null' : 'nothing'}`;
  if (Array.isArray(value)) return 'got an array';
  if (typeof value !== 'object') return `got a ${typeof value}`;
  const { success, message, details, ...rest } = value as Record<string, unknown>;
  if (typeof success !== 'boolean')
    return success === undefined ? 'got no success' : `got a success that is a ${typeof success}`;
  if (typeof message !== 'string')
    return message === undefined ? 'got no message' : `got a message that is a ${typeof message}`;
  const besides = Object.keys(rest).filter((name) => !known.includes(name));
  if (besides.length > 0) return `got ${besides.slice(0, 3).join(', ')} besides; put it into details`;
  return detailsProblem(details);
}

// They become jsonb, which has no place for a zero character.
function detailsProblem(details: unknown): string | undefined {
  if (details === undefined) return undefined;
  try {
    const text = JSON.stringify(details) as string | undefined;
    if (text === undefined) return `got details that are a ${typeof details}`;
    if (Buffer.byteLength(text) > 1_048_576) return 'got more than a megabyte of details';
    return text.includes('\\u0000') ? 'got details with a zero character' : undefined;
  } catch (error) {
    return `got details that can not be written as JSON (${String(error).split('\n', 1)[0]})`;
  }
}
