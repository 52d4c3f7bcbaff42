import type { Context } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import type { z } from 'zod';
import { asPgfreshError, PgfreshError, type ErrorCode } from '../errors/index.ts';

const largest = 64 * 1024;

/** What is not the server's fault. Everything else is told to the log, and to whoever asked only that it happened. */
const statuses = {
  PGF_ARGUMENT_INVALID: 400,
  PGF_CRON_INVALID: 400,
  PGF_ZONE_UNKNOWN: 400,
  PGF_JOB_INVALID: 400,
  PGF_JOB_RIGHT: 403,
  PGF_JOB_UNKNOWN: 404,
  PGF_RUN_UNKNOWN: 404,
} as const satisfies Partial<Record<ErrorCode, number>>;

/** The status of a request that was refused for a reason that may be told. */
export function statusOf(thrown: unknown): 400 | 403 | 404 | undefined {
  return (statuses as Partial<Record<ErrorCode, 400 | 403 | 404>>)[asPgfreshError(thrown).code];
}

/** Answers a request that was refused; throws again what is not for whoever asked. */
export function refusal(thrown: unknown, context: Context): Response {
  const status = statusOf(thrown);
  if (status === undefined) throw thrown;
  return context.json({ error: asPgfreshError(thrown) }, status);
}

/** A body that is JSON, or nothing. */
export async function readBody<Schema extends z.ZodType>(context: Context, schema: Schema): Promise<z.output<Schema>> {
  const text = (await context.req.text()).trim();
  let value: unknown = {};
  try {
    if (text !== '') value = JSON.parse(text) as unknown;
  } catch {
    throw invalid('the body is not JSON; expected an object, or nothing');
  }
  return checked(schema, value, 'body');
}

/** What is behind the question mark. */
export function readQuery<Schema extends z.ZodType>(context: Context, schema: Schema): z.output<Schema> {
  return checked(schema, context.req.query(), 'query');
}

/** Refuses a body that is larger than any that is meant. */
export const limited = bodyLimit({
  maxSize: largest,
  onError: (context) => context.json({ error: invalid(`the body is larger than ${largest} bytes`) }, 413),
});

function checked<Schema extends z.ZodType>(schema: Schema, value: unknown, place: string): z.output<Schema> {
  const { success, data, error } = schema.safeParse(value);
  if (success) return data;
  const issue = error.issues[0]!;
  const path = issue.path.length === 0 ? place : `${place}.${issue.path.join('.')}`;
  throw invalid(`${path}: ${issue.message.charAt(0).toLowerCase()}${issue.message.slice(1)}`);
}

function invalid(problem: string): PgfreshError {
  return new PgfreshError('PGF_ARGUMENT_INVALID', { problem });
}
