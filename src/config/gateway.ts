import { z } from 'zod';
import { bytes, type Bytes } from './bytes.ts';
import { options, readDefinition } from './definition.ts';
import { durationBetween, type Duration } from './duration.ts';
import type { ApiKeyPlace } from './http-request.ts';

/** A user, as their token describes them. */
export interface GatewayUser {
  /** From the claim `userClaim`; generated per connection for users without a token. */
  readonly id: string;
  readonly anonymous: boolean;
  /** All claims of the token; empty without one. */
  readonly claims: Readonly<Record<string, unknown>>;
}

/** What a user wants to view. */
export interface GatewayPair {
  readonly dataType: string;
  readonly key: string;
}

/** How user tokens are verified: with a secret, or with public keys from a URL. */
export interface JwtDefinition {
  /**
   * Where the HS256 secret is, 32 characters or more: `{ env: 'NAME' }` or `{ file: 'path' }`. Either this or
   * `jwksUrl`.
   */
  readonly secret?: ApiKeyPlace | undefined;
  /** The URL of the public keys, such as `https://login.example.com/.well-known/jwks.json`. Either this or `secret`. */
  readonly jwksUrl?: string | undefined;
  /** The required issuer. Default: any. */
  readonly issuer?: string | undefined;
  /** The required audience. Default: any. */
  readonly audience?: string | undefined;
  /** The claim with the id of the user. Default: sub. */
  readonly userClaim?: string | undefined;
}

/** The database roles that read data types with row security. */
export interface RlsDefinition {
  /** The database role of users with a token. */
  readonly role?: string | undefined;
  /** The claim with the role of the user, such as `role`; tokens without it use `role`. */
  readonly roleClaim?: string | undefined;
  /** The database role of users without a token. Default: they are refused. */
  readonly anonymousRole?: string | undefined;
  /** Time limit of a read as a user, policies included, from 10ms to 30s. Default: 3s. */
  readonly timeout?: Duration | undefined;
}

/** How much one user, connection or address may request. */
export interface GatewayLimits {
  /** Connections of this process. Default: 20000. */
  readonly connections?: number | undefined;
  /** Connections of a user to this process. Default: 50. */
  readonly connectionsPerUser?: number | undefined;
  /** Connections from an IPv4 address, or from a /64 of IPv6. Default: 500. */
  readonly connectionsPerAddress?: number | undefined;
  /** Pairs that a connection views at a time. Default: 500. */
  readonly pairsPerConnection?: number | undefined;
  /** Pairs that a user views at a time, over all connections to this process. Default: 2000. */
  readonly pairsPerUser?: number | undefined;
  /** Never-requested pairs per user and minute; each may cost a call. Default: 120. */
  readonly newPairsPerMinute?: number | undefined;
  /** Messages of a connection per second, and twice as many in a burst; also plain requests of a user. Default: 20. */
  readonly messagesPerSecond?: number | undefined;
  /** Size of a message, from 1KB to 10MB. Default: 128KB. */
  readonly messageBytes?: Bytes | undefined;
  /** Levels of JSON in a message. Default: 6. */
  readonly messageDepth?: number | undefined;
  /** Refreshes that a user requests per minute. Default: 6. */
  readonly refreshesPerMinute?: number | undefined;
  /**
   * Bytes buffered for a slow client, from 1KB to 100MB. Beyond, it gets only the newest state of each pair. Default:
   * 256KB.
   */
  readonly bufferBytes?: Bytes | undefined;
  /** How long a client may stay that slow before it is disconnected. Default: 30s. */
  readonly slowFor?: Duration | undefined;
}

/** Who may connect to the gateway, and what they may view. */
export interface GatewayDefinition {
  /** How user tokens are verified. Default: no token is accepted. */
  readonly jwt?: JwtDefinition | undefined;
  /** Who needs no token: users on this machine (`loopback`), or `everybody`. Default: nobody. */
  readonly anonymous?: 'loopback' | 'everybody' | undefined;
  /** Whether a user may view a pair; asked again every few seconds while they view it. Default: every user may. */
  readonly authorize?: ((user: GatewayUser, pair: GatewayPair) => boolean | Promise<boolean>) | undefined;
  /** How data types with `visibility: "rls"` are read. Default: they are refused. */
  readonly rls?: RlsDefinition | undefined;
  /**
   * Further sites whose pages may connect, such as `https://app.example.com`; `null` is a page opened from a file.
   * Default: none.
   */
  readonly origins?: readonly string[] | undefined;
  /** Whether the last address in `X-Forwarded-For` is the client. Only behind a proxy that sets it. Default: false. */
  readonly trustProxy?: boolean | undefined;
  /** How much one user, connection or address may request. */
  readonly limits?: GatewayLimits | undefined;
}

const place = 'expected { env: "NAME" } or { file: "path" }, never the secret itself';
const count = (usual: number) => z.int().min(1).max(10_000_000).default(usual);

const jwtSchema = options({
  secret: z
    .union(
      [options({ env: z.string().regex(/^[A-Za-z_]\w*$/, place) }), options({ file: z.string().min(1, place) })],
      place,
    )
    .optional(),
  jwksUrl: z
    .string()
    .refine(
      (text) => /^https?:$/.test(URL.parse(text)?.protocol ?? ''),
      'expected an address that begins with https://',
    )
    .optional(),
  issuer: z.string().min(1).optional(),
  audience: z.string().min(1).optional(),
  userClaim: z.string().min(1).default('sub'),
}).refine(
  ({ secret, jwksUrl }) => (secret === undefined) !== (jwksUrl === undefined),
  'expected secret or jwksUrl, and not both',
);

const roleName = z.string().regex(/^[^\p{Cc}]{1,63}$/u, 'expected the name of a role, such as "authenticated"');

const rlsSchema = options({
  role: roleName.optional(),
  roleClaim: z.string().min(1).optional(),
  anonymousRole: roleName.optional(),
  timeout: durationBetween('10ms', '30s').default(3_000),
}).refine(
  ({ role, roleClaim, anonymousRole }) => (role ?? roleClaim ?? anonymousRole) !== undefined,
  'expected a role, a roleClaim or an anonymousRole',
);

const limitsSchema = options({
  connections: count(20_000),
  connectionsPerUser: count(50),
  connectionsPerAddress: count(500),
  pairsPerConnection: count(500),
  pairsPerUser: count(2_000),
  newPairsPerMinute: count(120),
  messagesPerSecond: count(20),
  messageBytes: bytes
    .refine((size) => size >= 1_000 && size <= 1e7, 'expected a size from 1KB to 10MB')
    .default(128_000),
  messageDepth: z.int().min(4).max(64).default(6),
  refreshesPerMinute: count(6),
  bufferBytes: bytes
    .refine((size) => size >= 1_000 && size <= 1e8, 'expected a size from 1KB to 100MB')
    .default(256_000),
  slowFor: durationBetween('100ms', '10m').default(30_000),
});

const gatewaySchema = options({
  jwt: jwtSchema.optional(),
  anonymous: z.enum(['loopback', 'everybody']).optional(),
  authorize: z
    .custom<NonNullable<GatewayDefinition['authorize']>>((value) => typeof value === 'function', 'expected a function')
    .optional(),
  rls: rlsSchema.optional(),
  origins: z
    .array(z.string().refine(isOrigin, 'expected a site such as "https://app.example.com", without a path'))
    .max(100)
    .default([]),
  trustProxy: z.boolean().default(false),
  limits: limitsSchema.prefault({}),
}) satisfies z.ZodType<unknown, GatewayDefinition>;

/** The gateway's options as the program uses them. */
export type GatewaySettings = z.output<typeof gatewaySchema>;
export type JwtSettings = z.output<typeof jwtSchema>;
export type RlsSettings = z.output<typeof rlsSchema>;
export type LimitSettings = z.output<typeof limitsSchema>;

export function readGateway(value: unknown, file: string): GatewaySettings {
  return readDefinition(gatewaySchema, value ?? {}, { file, path: 'gateway' });
}

function isOrigin(text: string): boolean {
  // What browsers say of a page that is a file.
  if (text === 'null') return true;
  const url = URL.parse(text);
  return url !== null && /^https?:$/.test(url.protocol) && url.origin === text;
}
