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
  /** The URL that paths of requests are relative to, such as `https://api.example.com/v1`. Default: none. */
  readonly baseUrl?: string | undefined;
  /**
   * Further hosts of the source, with their port unless it is the default one. No other host is called, not even after
   * a redirect. Default: none.
   */
  readonly hosts?: readonly string[] | undefined;
  /** Whether it may be on this machine or in a private network. Default: false. */
  readonly allowPrivateAddresses?: boolean | undefined;
  /** Headers of every call. Not for secrets. Default: none. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /**
   * Where its API keys are: `{ env: 'NAME' }` or `{ file: 'path' }`. Each key has the rate limit for itself. The
   * database stores only their number. Default: none.
   */
  readonly apiKeys?: readonly ApiKeyPlace[] | undefined;
  /** Adds the API key or the token to a request, or signs it. Default: a token is sent as `Authorization: Bearer`. */
  readonly authorize?:
    | ((request: PreparedRequest, context: AuthorizeContext) => Authorization | Promise<Authorization>)
    | undefined;
  /** Fetches a token: when there is none, when it has expired, and once more after a 401. Default: none. */
  readonly token?: ((context: TokenContext) => Promise<Token>) | undefined;
  /** Time limit of a whole call, from its first step to the last byte of the answer. Default: 10s. */
  readonly timeout?: Duration | undefined;
  /** Maximum size of an answer as it is transferred, with its headers. Default: 8MB. */
  readonly maxWireBytes?: Bytes | undefined;
  /** Maximum size of an answer after decompression. Default: 32MB. */
  readonly maxDecodedBytes?: Bytes | undefined;
  /** Maximum growth of an answer by decompression. Default: 100. */
  readonly maxRatio?: number | undefined;
  /** How long an answer may be reused, at most the TTL of the data type. Default: 1h. */
  readonly cacheTtl?: Duration | undefined;
  /** Maximum number of answers cached per process; 0 disables the cache. Default: 1000. */
  readonly cacheEntries?: number | undefined;
}

/** Options whose values may contain secrets; messages do not show them. */
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

/** Whether a header may be set by anything but the client. */
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
