import { z } from 'zod';
import { bytes, type Bytes } from './bytes.ts';
import { options } from './definition.ts';
import { durationBetween, type Duration } from './duration.ts';
import type {
  ApiKeyPlace,
  Authorization,
  AuthorizeContext,
  PreparedRequest,
  Token,
  TokenContext,
} from './http-request.ts';

/** How a source is called. */
export interface ClientDefinition {
  /** Where its paths begin, such as "https://api.example.com/v1". */
  readonly baseUrl?: string | undefined;
  /** Other hosts of it, with their port unless it is the usual one. Nothing else is called, not by a redirect either. */
  readonly hosts?: readonly string[] | undefined;
  /** Whether it may be on this machine or in a private network; false if it is left out. */
  readonly allowPrivateAddresses?: boolean | undefined;
  /** Sent with each call. Secrets do not belong here. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Where its API keys are. Each has the rate limit of the source for itself. */
  readonly apiKeys?: readonly ApiKeyPlace[] | undefined;
  /** Puts the key or the token into a request, or signs it; a token goes into Authorization as Bearer if it is left out. */
  readonly authorize?:
    | ((request: PreparedRequest, context: AuthorizeContext) => Authorization | Promise<Authorization>)
    | undefined;
  /** Fetches a token; asked for one when there is none, when it has expired, and once more when the answer is 401. */
  readonly token?: ((context: TokenContext) => Promise<Token>) | undefined;
  /** From the first step of a call to the last byte of its answer; 10 s if it is left out. */
  readonly timeout?: Duration | undefined;
  /** The largest answer as it comes, with its headers; 8MB if it is left out. */
  readonly maxWireBytes?: Bytes | undefined;
  /** The largest answer unpacked; 32MB if it is left out. */
  readonly maxDecodedBytes?: Bytes | undefined;
  /** How many times larger it may become by unpacking; 100 if it is left out. */
  readonly maxRatio?: number | undefined;
  /** How long an answer may be used again, at most the ttl of the data type; 1 hour if it is left out. */
  readonly cacheTtl?: Duration | undefined;
  /** How many answers are kept, in each process; 1000 if it is left out, and 0 keeps none. */
  readonly cacheEntries?: number | undefined;
}

/** Options whose values may hold what nobody should read; messages do not show them. */
export const secretOptions: readonly string[] = ['baseUrl', 'hosts', 'headers', 'apiKeys'];

/** What the client itself says: an answer in another encoding or of another length could not be counted or read. */
const ownHeaders = new Set([
  'accept-encoding',
  'connection',
  'content-length',
  'expect',
  'host',
  'keep-alive',
  'proxy-authorization',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** Whether a header may be set by somebody else than the client. */
export function isFreeHeader(name: string): boolean {
  return /^[\w!#$%&'*+.^`|~-]+$/.test(name) && !ownHeaders.has(name.toLowerCase());
}

const limit = bytes.refine((count) => count >= 1_000 && count <= 1e9, 'expected a size from 1KB to 1GB');
const place = 'expected { env: "NAME" } or { file: "path" }, never the key itself';
const headerText = z.string().regex(/^[\t\x20-\x7e\x80-\xff]*$/, 'expected a text without line breaks');
// oxlint-disable-next-line typescript/no-explicit-any -- the types of the hooks are those of ClientDefinition
const hook = <F extends (...args: any[]) => unknown>() =>
  z.custom<F>((value) => typeof value === 'function', 'expected a function');

/** The options of the client, part of those of a source. */
export const clientOptions = {
  baseUrl: z
    .string()
    .refine(
      isBaseUrl,
      'expected an address such as "https://api.example.com/v1", without a login, a query or an anchor',
    )
    .optional(),
  hosts: z
    .array(z.string().refine(isHost, 'expected a host such as "api.example.com" or "api.example.com:8443"'))
    .max(64)
    .default([]),
  allowPrivateAddresses: z.boolean().default(false),
  headers: z
    .record(z.string(), headerText)
    .refine((headers) => Object.keys(headers).every(isFreeHeader), 'expected headers that pgfresh does not set itself')
    .default({}),
  apiKeys: z
    .array(
      z.union(
        [options({ env: z.string().regex(/^[A-Za-z_]\w*$/, place) }), options({ file: z.string().min(1, place) })],
        place,
      ),
      'expected a list of { env: "NAME" } or { file: "path" }',
    )
    .max(100)
    .default([]),
  authorize: hook<NonNullable<ClientDefinition['authorize']>>().optional(),
  token: hook<NonNullable<ClientDefinition['token']>>().optional(),
  timeout: durationBetween('1ms', '5m').default(10_000),
  maxWireBytes: limit.default(8e6),
  maxDecodedBytes: limit.default(32e6),
  maxRatio: z.number().min(1).max(10_000).default(100),
  cacheTtl: durationBetween('1ms', '366d').default(3_600_000),
  cacheEntries: z.int().min(0).max(1_000_000).default(1_000),
};

function isBaseUrl(text: string): boolean {
  const url = URL.parse(text);
  if (!url || !/^https?:$/.test(url.protocol)) return false;
  return url.username === '' && url.password === '' && !/[?#]/.test(text);
}

function isHost(text: string): boolean {
  return /^[^/?#@\\\s]+$/.test(text) && URL.parse(`https://${text}`)?.pathname === '/';
}
