import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createRemoteJWKSet, jwtVerify, type JWTPayload, type JWTVerifyGetKey } from 'jose';
import type { GatewaySettings, GatewayUser, JwtSettings } from '../../config/index.ts';
import { PgfreshError, problemOf } from '../../errors/index.ts';

/** A user whose token was verified, or an anonymous one. */
export interface AuthenticatedUser {
  readonly user: GatewayUser;
  /** When the token expires, in milliseconds of the wall clock; Infinity without a token. */
  readonly expiresAt: number;
}

type Environment = Readonly<Record<string, string | undefined>>;

const minSecretLength = 32;
const maxTokenLength = 8_192;
// Fixed here, because a token must not choose an algorithm that uses a public key as a secret.
const publicKeyAlgorithms = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
];

/** Verifies tokens, and decides who may connect without one. */
export class Authenticator {
  readonly #settings: Pick<GatewaySettings, 'jwt' | 'anonymous'>;
  readonly #env: Environment;
  #key: Uint8Array | JWTVerifyGetKey | undefined;

  constructor(settings: Pick<GatewaySettings, 'jwt' | 'anonymous'>, env: Environment = process.env) {
    this.#settings = settings;
    this.#env = env;
  }

  /** Reads the secret, or prepares the client of the JWKS endpoint. */
  async loadKey(): Promise<void> {
    const { jwt } = this.#settings;
    if (jwt?.secret !== undefined) this.#key = new TextEncoder().encode(await this.#readSecret(jwt.secret));
    else if (jwt?.jwksUrl !== undefined)
      this.#key = createRemoteJWKSet(new URL(jwt.jwksUrl), { timeoutDuration: 5_000 });
  }

  /** Returns the user of a token, or an anonymous one where that is allowed; throws otherwise. */
  async authenticate(token: string | undefined, isLocal: boolean): Promise<AuthenticatedUser> {
    if (token !== undefined && this.#key !== undefined) return this.#verify(token, this.#settings.jwt!);
    const { anonymous } = this.#settings;
    if (token === undefined && (anonymous === 'everybody' || (anonymous === 'loopback' && isLocal))) {
      return { user: { id: `anonymous:${randomUUID()}`, anonymous: true, claims: {} }, expiresAt: Infinity };
    }
    throw invalidToken(
      this.#key
        ? 'there is none'
        : 'this gateway accepts no clients, because its configuration has neither gateway.jwt nor gateway.anonymous',
    );
  }

  async #verify(token: string, { issuer, audience, userClaim }: JwtSettings): Promise<AuthenticatedUser> {
    if (token.length > maxTokenLength) throw invalidToken(`it is longer than ${maxTokenLength} characters`);
    const options = {
      algorithms: this.#key instanceof Uint8Array ? ['HS256'] : publicKeyAlgorithms,
      requiredClaims: ['exp', userClaim],
      ...(issuer === undefined ? {} : { issuer }),
      ...(audience === undefined ? {} : { audience }),
    };
    const key = this.#key!;
    const verified = key instanceof Uint8Array ? jwtVerify(token, key, options) : jwtVerify(token, key, options);
    const { payload } = await verified.catch((error: unknown) => {
      throw invalidToken(problemOf(error), error);
    });
    return {
      user: { id: userIdOf(payload, userClaim), anonymous: false, claims: payload },
      expiresAt: payload.exp! * 1_000,
    };
  }

  async #readSecret(source: NonNullable<JwtSettings['secret']>): Promise<string> {
    const where = 'env' in source ? `the variable ${source.env}` : `the file ${source.file}`;
    const text =
      'env' in source
        ? this.#env[source.env]
        : await readFile(source.file, 'utf8').catch((error: unknown) => {
            throw unusableSecret(`${where} cannot be read (${(error as NodeJS.ErrnoException).code})`);
          });
    const secret = text?.trim() ?? '';
    if (secret.length < minSecretLength)
      throw unusableSecret(`expected ${minSecretLength} characters or more in ${where}, got ${secret.length}`);
    return secret;
  }
}

function userIdOf(payload: JWTPayload, claim: string): string {
  const id = payload[claim];
  if (typeof id === 'string' && id !== '' && id.length <= 200 && !/\p{Cc}/u.test(id)) return id;
  throw invalidToken(`its claim ${claim} must be a text of 1 to 200 characters`);
}

function invalidToken(problem: string, cause?: unknown): PgfreshError {
  return new PgfreshError('PGF_LIVE_TOKEN', { problem }, { cause });
}

function unusableSecret(problem: string): PgfreshError {
  return new PgfreshError('PGF_GATEWAY_SECRET', { problem });
}
