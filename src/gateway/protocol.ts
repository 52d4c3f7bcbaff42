import { z } from 'zod';
import { PgfreshError } from '../errors/index.ts';
import type { Reason } from '../planner/index.ts';

/** The version of what clients and the gateway say to each other; docs/protocol.md describes it. */
export const protocolVersion = 1;

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
} as const;

const message = z.discriminatedUnion(
  'type',
  Object.values(messages) as unknown as [typeof messages.hello, ...ClientSchema[]],
);
type ClientSchema = (typeof messages)[keyof typeof messages];

/** What a client says. */
export type ClientMessage = z.output<ClientSchema>;

/** A pair that a client wants, perhaps with the version that it has. */
export type WantedPair = z.output<typeof wanted>;

/** Reads what a client has sent. */
export function readMessage(text: string, deepest: number): ClientMessage {
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

export type PairName = readonly [dataType: string, key: string];

interface Refusal {
  readonly code: string;
  readonly message: string;
  readonly next: string;
}

/** What the gateway says, besides the states of pairs, which are written as text only once for all. */
export type ServerMessage =
  | {
      readonly type: 'welcome';
      readonly protocol: number;
      readonly session?: string;
      readonly user: string;
      readonly expires_at: string | null;
      readonly now: string;
      readonly limits: { readonly pairs: number; readonly message_bytes: number };
    }
  | { readonly type: 'answer'; readonly pairs: readonly PairAnswer[] }
  | {
      readonly type: 'waiting';
      readonly pair: PairName;
      readonly activity: 'waiting';
      readonly reason: Reason;
      readonly words: string;
    }
  | ({ readonly type: 'revoked'; readonly pair: PairName } & Refusal)
  | { readonly type: 'refresh'; readonly pair: PairName; readonly result: string }
  | ({ readonly type: 'refresh'; readonly pair: PairName; readonly result: 'refused' } & Refusal)
  | { readonly type: 'authenticated'; readonly expires_at: string | null }
  | { readonly type: 'viewers'; readonly pair: PairName; readonly viewers: number }
  | { readonly type: 'resync'; readonly skipped: number }
  | { readonly type: 'reconnect'; readonly after_ms: number }
  | { readonly type: 'pong'; readonly now: string }
  | ({ readonly type: 'error' } & Refusal);

/** What came of asking for a pair. `key` is how its data type writes it, where that differs. */
export type PairAnswer =
  | { readonly pair: PairName; readonly result: 'accepted'; readonly key?: string }
  | ({ readonly pair: PairName; readonly result: 'refused' } & Refusal);

export function encode(said: ServerMessage): Buffer {
  return Buffer.from(JSON.stringify(said));
}
