import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createRemoteJWKSet, jwtVerify, type JWTPayload, type JWTVerifyGetKey } from 'jose';
import type { GatewaySettings, GatewayUser, JwtSettings } from '../../config/index.ts';
import { PgfreshError, problemOf } from '../../errors/index.ts';

/** Somebody who has shown who he is, until his token expires. */
export interface Identified {
  readonly user: GatewayUser;
  /** In milliseconds of the wall clock, by which tokens go. */
  readonly expiresAt: number;
}

type Environment = Readonly<Record<string, string | undefined>>;

const shortestSecret = 32;
const longestToken = 8_192;
// An algorithm that the token chooses must never make a public key into a secret.
const byKey = ['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512', 'ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'];

/** Finds out who somebody is, by the token that he brings. */
export class Identity {
  readonly #settings: Pick<GatewaySettings, 'jwt' | 'anonymous'>;
  readonly #env: Environment;
  #key: Uint8Array | JWTVerifyGetKey | undefined;

  constructor(settings: Pick<GatewaySettings, 'jwt' | 'anonymous'>, env: Environment = process.env) {
    this.#settings = settings;
    this.#env = env;
  }

  /** Reads the secret, or prepares to ask for the keys. */
  async open(): Promise<void> {
    const { jwt } = this.#settings;
    if (jwt?.secret !== undefined) this.#key = new TextEncoder().encode(await this.#secret(jwt.secret));
    else if (jwt?.jwksUrl !== undefined)
      this.#key = createRemoteJWKSet(new URL(jwt.jwksUrl), { timeoutDuration: 5_000 });
  }

  /** Who brings this token, or who needs none. Refuses everybody else. */
  async of(token: string | undefined, isLocal: boolean): Promise<Identified> {
    if (token !== undefined && this.#key !== undefined) return this.#verified(token, this.#settings.jwt!);
    const { anonymous } = this.#settings;
    if (token === undefined && (anonymous === 'everybody' || (anonymous === 'loopback' && isLocal))) {
      return { user: { id: `anonymous:${randomUUID()}`, anonymous: true, claims: {} }, expiresAt: Infinity };
    }
    throw refused(
      this.#key
        ? 'there is none'
        : 'this gateway lets nobody in, because its configuration has neither gateway.jwt nor gateway.anonymous',
    );
  }

  async #verified(token: string, { issuer, audience, userClaim }: JwtSettings): Promise<Identified> {
    if (token.length > longestToken) throw refused(`it is longer than ${longestToken} characters`);
    const options = {
      algorithms: this.#key instanceof Uint8Array ? ['HS256'] : byKey,
      requiredClaims: ['exp', userClaim],
      ...(issuer === undefined ? {} : { issuer }),
      ...(audience === undefined ? {} : { audience }),
    };
    const key = this.#key!;
    const verified = key instanceof Uint8Array ? jwtVerify(token, key, options) : jwtVerify(token, key, options);
    const { payload } = await verified.catch((error: unknown) => {
      throw refused(problemOf(error), error);
    });
    return {
      user: { id: userOf(payload, userClaim), anonymous: false, claims: payload },
      expiresAt: payload.exp! * 1_000,
    };
  }

  async #secret(place: NonNullable<JwtSettings['secret']>): Promise<string> {
    const where = 'env' in place ? `the variable ${place.env}` : `the file ${place.file}`;
    const found =
      'env' in place
        ? this.#env[place.env]
        : await readFile(place.file, 'utf8').catch((error: unknown) => {
            throw unusable(`${where} cannot be read (${(error as NodeJS.ErrnoException).code})`);
          });
    const secret = found?.trim() ?? '';
    if (secret.length < shortestSecret)
      throw unusable(`expected ${shortestSecret} characters or more in ${where}, got ${secret.length}`);
    return secret;
  }
}

function userOf(payload: JWTPayload, claim: string): string {
  const id = payload[claim];
  if (typeof id === 'string' && id !== '' && id.length <= 200 && !/\p{Cc}/u.test(id)) return id;
  throw refused(`its claim ${claim} must be a text of 1 to 200 characters`);
}

function refused(problem: string, cause?: unknown): PgfreshError {
  return new PgfreshError('PGF_LIVE_TOKEN', { problem }, { cause });
}

function unusable(problem: string): PgfreshError {
  return new PgfreshError('PGF_GATEWAY_SECRET', { problem });
}
