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

const message = z.discriminatedUnion(
  'type',
  Object.values(messages) as unknown as [typeof messages.hello, ...ClientSchema[]],
);
type ClientSchema = (typeof messages)[keyof typeof messages];

/** What a client has sent. Whether it speaks our version, `hello` tells only when it has been read. */
export type ReadMessage = Exclude<ClientMessage, { type: 'hello' }> | z.output<typeof messages.hello>;

/** Reads what a client has sent. */
export function readMessage(text: string, deepest: number): ReadMessage {
  if (depthOf(text) > deepest) throw misunderstood(`it is more than ${deepest} levels deep`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw misunderstood('it is not JSON');
  }
  const type = typeof value === 'object' && value !== null && 'type' in value ? value.type : undefined;
  if (typeof type !== 'string' || !Object.hasOwn(messages, type)) {
    const got = typeof type === 'string' ? JSON.stringify(type.slice(0, 40)) : 'none';
    throw misunderstood(`expected a type of ${Object.keys(messages).join(', ')}, got ${got}`);
  }
  const result = message.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw misunderstood(`${[type, ...issue!.path].join('.')}: ${issue!.message}`);
}

const [quote, backslash] = [0x22, 0x5c];
const [openBracket, closeBracket, openBrace, closeBrace] = [0x5b, 0x5d, 0x7b, 0x7d];

// By the text, so that nothing deep is ever built.
function depthOf(text: string): number {
  let depth = 0;
  let deepest = 0;
  let quoted = false;
  for (let place = 0; place < text.length; place++) {
    const sign = text.charCodeAt(place);
    if (quoted) {
      if (sign === backslash) place += 1;
      else if (sign === quote) quoted = false;
    } else if (sign === quote) quoted = true;
    else if (sign === openBrace || sign === openBracket) deepest = Math.max(deepest, ++depth);
    else if (sign === closeBrace || sign === closeBracket) depth -= 1;
  }
  return deepest;
}

function misunderstood(problem: string): PgfreshError {
  return new PgfreshError('PGF_LIVE_MESSAGE', { problem });
}

/** A state before its rows, which are JSON already. Its times become text when it is written. */
export type StateHead = Omit<StateMessage, 'rows' | StateTime> & Readonly<Record<StateTime, Date | null>>;
type StateTime = 'until' | 'fetched_at' | 'stale_at' | 'source_at';

/** Writes what the gateway says, besides the states of pairs, which are written only once for all. */
export function encode(said: Exclude<ServerMessage, StateMessage>): Buffer {
  return Buffer.from(JSON.stringify(said));
}
