import type { ClientMessage, protocol, ServerMessage, StateMessage } from '#protocol';
import { z } from 'zod';
import { PgfreshError } from '../errors/index.ts';

export const protocolVersion: typeof protocol = 1;

const pair = z.tuple([z.string(), z.string()]);
const wanted = z.union([pair, z.tuple([z.string(), z.string(), z.string().max(200)])]);

const messages = {
  hello: z.strictObject({
    type: z.literal('hello'),
    protocol: z.unknown().optional(),
    viewers: z.boolean().optional(),
  }),
  want: z.strictObject({ type: z.literal('want'), pairs: z.array(wanted) }),
  add: z.strictObject({ type: z.literal('add'), pairs: z.array(wanted) }),
  drop: z.strictObject({ type: z.literal('drop'), pairs: z.array(pair) }),
  refresh: z.strictObject({ type: z.literal('refresh'), pair }),
  auth: z.strictObject({ type: z.literal('auth'), token: z.string() }),
  ping: z.strictObject({ type: z.literal('ping') }),
} as const satisfies Record<ClientMessage['type'], z.ZodType>;

const anyMessage = z.discriminatedUnion(
  'type',
  Object.values(messages) as unknown as [typeof messages.hello, ...ClientSchema[]],
);
type ClientSchema = (typeof messages)[keyof typeof messages];

/** A client's message. The version in `hello` is not checked yet, so that other versions can be answered. */
export type ParsedMessage = Exclude<ClientMessage, { type: 'hello' }> | z.output<typeof messages.hello>;

/** Parses a client's message; throws if it is malformed. */
export function parseMessage(text: string, maxDepth: number): ParsedMessage {
  if (depthOf(text) > maxDepth) throw malformed(`it is more than ${maxDepth} levels deep`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw malformed('it is not JSON');
  }
  const type = typeof value === 'object' && value !== null && 'type' in value ? value.type : undefined;
  if (typeof type !== 'string' || !Object.hasOwn(messages, type)) {
    const got = typeof type === 'string' ? JSON.stringify(type.slice(0, 40)) : 'none';
    throw malformed(`expected a type of ${Object.keys(messages).join(', ')}, got ${got}`);
  }
  const result = anyMessage.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw malformed(`${[type, ...issue!.path].join('.')}: ${issue!.message}`);
}

const [quote, backslash] = [0x22, 0x5c];
const [openBracket, closeBracket, openBrace, closeBrace] = [0x5b, 0x5d, 0x7b, 0x7d];

// Measured on the text, so that deeply nested values are never built.
function depthOf(text: string): number {
  let depth = 0;
  let maxDepth = 0;
  let isQuoted = false;
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (isQuoted) {
      if (code === backslash) index += 1;
      else if (code === quote) isQuoted = false;
    } else if (code === quote) isQuoted = true;
    else if (code === openBrace || code === openBracket) maxDepth = Math.max(maxDepth, ++depth);
    else if (code === closeBrace || code === closeBracket) depth -= 1;
  }
  return maxDepth;
}

function malformed(problem: string): PgfreshError {
  return new PgfreshError('PGF_LIVE_MESSAGE', { problem });
}

/** A state message without its rows, which are already JSON. Its dates become text when it is encoded. */
export type StateHead = Omit<StateMessage, 'rows' | StateTime> & Readonly<Record<StateTime, Date | null>>;
type StateTime = 'until' | 'fetched_at' | 'stale_at' | 'source_at';

/** Encodes any message but a state, which is encoded once for all its viewers. */
export function encodeMessage(message: Exclude<ServerMessage, StateMessage>): Buffer {
  return Buffer.from(JSON.stringify(message));
}
