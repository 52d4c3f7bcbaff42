/** Who looks. */
export interface User {
  readonly id: string;
  readonly anonymous: boolean;
  readonly claims: Readonly<Record<string, unknown>>;
}

export interface Pair {
  readonly dataType: string;
  readonly key: string;
}

export interface Limits {
  readonly connections: number;
  readonly connectionsPerUser: number;
  readonly connectionsPerAddress: number;
  readonly pairsPerConnection: number;
  readonly pairsPerUser: number;
  readonly newPairsPerMinute: number;
  readonly messagesPerSecond: number;
  readonly messageBytes: number;
  readonly messageDepth: number;
  readonly refreshesPerMinute: number;
  readonly bufferBytes: number;
  readonly slowFor: number;
}

export interface JwtSettings {
  readonly secret?: { readonly env: string } | { readonly file: string } | undefined;
  readonly jwksUrl?: string | undefined;
  readonly issuer?: string | undefined;
  readonly audience?: string | undefined;
  readonly userClaim: string;
}

export interface RlsSettings {
  readonly role?: string | undefined;
  readonly roleClaim?: string | undefined;
  readonly anonymousRole?: string | undefined;
  readonly timeout: number;
}

/** What `gateway` of the configuration says. */
export interface GatewaySettings {
  readonly jwt?: JwtSettings | undefined;
  readonly anonymous?: 'loopback' | 'everybody' | undefined;
  readonly authorize?: ((user: User, pair: Pair) => boolean | Promise<boolean>) | undefined;
  readonly rls?: RlsSettings | undefined;
  readonly origins: readonly string[];
  readonly trustProxy: boolean;
  readonly limits: Limits;
}
