import { z } from 'zod';
import { bytes, type Bytes } from './bytes.ts';
import { options, readDefinition } from './definition.ts';
import { durationBetween, type Duration } from './duration.ts';
import type { ApiKeyPlace } from './http-request.ts';

/** Who looks, as his token says. */
export interface GatewayUser {
  /** The claim that names him; made up for each connection of somebody who needs no token. */
  readonly id: string;
  readonly anonymous: boolean;
  /** Everything that his token says; nothing for somebody who needs none. */
  readonly claims: Readonly<Record<string, unknown>>;
}

/** What he wants to look at. */
export interface GatewayPair {
  readonly dataType: string;
  readonly key: string;
}

/** How the tokens of users are checked: by a secret, or by the keys at an address. */
export interface JwtDefinition {
  /** Where the secret of HS256 is, 32 characters or more. */
  readonly secret?: ApiKeyPlace | undefined;
  /** Where the public keys are, such as "https://login.example.com/.well-known/jwks.json". */
  readonly jwksUrl?: string | undefined;
  /** Who must have issued the token. */
  readonly issuer?: string | undefined;
  /** For whom it must be. */
  readonly audience?: string | undefined;
  /** The claim that names the user; `sub` if it is left out. */
  readonly userClaim?: string | undefined;
}

/** As which roles of the database those look who may see only what row security shows them. */
export interface RlsDefinition {
  /** The role of users with a token. */
  readonly role?: string | undefined;
  /** The claim of the token that names the role, such as "role"; `role` is for tokens without it. */
  readonly roleClaim?: string | undefined;
  /** The role of people without a token; they are refused if it is left out. */
  readonly anonymousRole?: string | undefined;
  /** How long it may take to read as a user, and so what policies may take to decide; 3s if it is left out. */
  readonly timeout?: Duration | undefined;
}

/** How much one person or one address may ask for. */
export interface GatewayLimits {
  /** Connections of this process; 20000 if it is left out. */
  readonly connections?: number | undefined;
  readonly connectionsPerUser?: number | undefined;
  readonly connectionsPerAddress?: number | undefined;
  readonly pairsPerConnection?: number | undefined;
  readonly pairsPerUser?: number | undefined;
  /** Pairs that nobody has ever asked for, which cost a call each. */
  readonly newPairsPerMinute?: number | undefined;
  readonly messagesPerSecond?: number | undefined;
  readonly messageBytes?: Bytes | undefined;
  /** How deep the JSON of a message may be. */
  readonly messageDepth?: number | undefined;
  readonly refreshesPerMinute?: number | undefined;
  /** What may wait for a client that reads slowly, before it gets only the newest of each pair. */
  readonly bufferBytes?: Bytes | undefined;
  /** How long it may stay that slow. */
  readonly slowFor?: Duration | undefined;
}

/** Who may connect to the gateway, and what for. */
export interface GatewayDefinition {
  readonly jwt?: JwtDefinition | undefined;
  /** Who needs no token: nobody if it is left out, those on this machine (`loopback`), or `everybody`. */
  readonly anonymous?: 'loopback' | 'everybody' | undefined;
  /** Whether a user may look at a pair. Asked again every few seconds while he does; everybody may if it is left out. */
  readonly authorize?: ((user: GatewayUser, pair: GatewayPair) => boolean | Promise<boolean>) | undefined;
  /** How data types with the visibility `rls` are read; they are refused if it is left out. */
  readonly rls?: RlsDefinition | undefined;
  /** Further sites whose pages may connect, such as "https://app.example.com"; "null" is a page that is a file. */
  readonly origins?: readonly string[] | undefined;
  /** Whether the last address of X-Forwarded-For is that of the client; only behind a proxy that sets it. */
  readonly trustProxy?: boolean | undefined;
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
