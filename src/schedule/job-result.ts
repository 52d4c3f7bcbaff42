import { PgfreshError } from '../errors/index.ts';
import type { JobResult } from '../config/index.ts';

export type { JobResult };

const expected =
  'expected { success: true or false, message: "a text", details: anything }, of which details may be left out';

/**
 * Validates what a handler returned; additional keys go into the details. Throws PGF_JOB_RESULT, in the
 * same words as the SQL function job_result.
 */
export function readJobResult(value: unknown): JobResult {
  const problem = problemOf(value);
  if (problem !== undefined) throw new PgfreshError('PGF_JOB_RESULT', { problem: `${expected}; ${problem}` });
  const { success, message, details, ...besides } = value as JobResult;
  const all = Object.keys(besides).length === 0 ? details : { ...besides, ...detailsObject(details) };
  return { success, message: message.slice(0, 4_000), ...(all === undefined ? {} : { details: all }) };
}

function detailsObject(details: unknown): object {
  if (details === undefined || details === null) return {};
  return typeof details === 'object' && !Array.isArray(details) ? details : { details };
}

function problemOf(value: unknown): string | undefined {
  if (value === undefined || value === null) return `got ${value === null ? 'null' : 'nothing'}`;
  if (Array.isArray(value)) return 'got an array';
  if (typeof value !== 'object') return `got a ${typeof value}`;
  const { success, message, ...details } = value as Record<string, unknown>;
  if (typeof success !== 'boolean')
    return success === undefined ? 'got no success' : `got a success that is a ${typeof success}`;
  if (typeof message !== 'string')
    return message === undefined ? 'got no message' : `got a message that is a ${typeof message}`;
  return detailsProblem(details);
}

function detailsProblem(details: Readonly<Record<string, unknown>>): string | undefined {
  const unknown = ['function', 'symbol'].find((kind) => typeof details['details'] === kind);
  if (unknown !== undefined) return `got details that are a ${unknown}`;
  try {
    return Buffer.byteLength(JSON.stringify(details)) > 1_048_576 ? 'got more than a megabyte' : undefined;
  } catch (error) {
    return `got details that cannot be written as JSON (${String(error).split('\n', 1)[0]})`;
  }
}
