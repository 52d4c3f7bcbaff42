import type { Context } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import type { z } from 'zod';
import { asPgfreshError, PgfreshError, type ErrorCode } from '../errors/index.ts';

const maxBodyBytes = 64 * 1024;

/** Errors of the client. Of all others, it learns only that they happened; details go to the log. */
const statuses = {
  PGF_ARGUMENT_INVALID: 400,
  PGF_CRON_INVALID: 400,
  PGF_ZONE_UNKNOWN: 400,
  PGF_JOB_INVALID: 400,
  PGF_JOB_RIGHT: 403,
  PGF_JOB_UNKNOWN: 404,
  PGF_RUN_UNKNOWN: 404,
} as const satisfies Partial<Record<ErrorCode, number>>;

/** The HTTP status of an error of the client; undefined for other errors. */
export function statusOf(thrown: unknown): 400 | 403 | 404 | undefined {
  return (statuses as Partial<Record<ErrorCode, 400 | 403 | 404>>)[asPgfreshError(thrown).code];
}

/** Answers with an error of the client; rethrows all others. */
export function refusal(thrown: unknown, context: Context): Response {
  const status = statusOf(thrown);
  if (status === undefined) throw thrown;
  return context.json({ error: asPgfreshError(thrown) }, status);
}

/** Parses a JSON body, which may be empty. */
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

/** Parses the query parameters. */
export function readQuery<Schema extends z.ZodType>(context: Context, schema: Schema): z.output<Schema> {
  return checked(schema, context.req.query(), 'query');
}

/** Refuses bodies that are too large. */
export const limited = bodyLimit({
  maxSize: maxBodyBytes,
  onError: (context) => context.json({ error: invalid(`the body is larger than ${maxBodyBytes} bytes`) }, 413),
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
