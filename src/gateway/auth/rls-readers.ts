import { createHash } from 'node:crypto';
import type { Reader } from '../../changes/index.ts';
import type { GatewayUser, RlsSettings } from '../../config/index.ts';
import { storableJson, type Queryable } from '../../database/index.ts';
import { PgfreshError } from '../../errors/index.ts';

const admit = 'select pgfresh_engine.admit_viewer_role($1::text)';
const rememberMs = 5_000;

/** Who of the users reads as whom. Of a role it is asked in the database whether that can be, every few seconds. */
export class Readers {
  readonly #settings: RlsSettings | undefined;
  readonly #db: Queryable;
  readonly #known = new WeakMap<GatewayUser, Reader>();
  readonly #roles = new Map<string, { readonly admitted: Promise<unknown>; readonly until: number }>();
  #count = 0;

  constructor(settings: RlsSettings | undefined, db: Queryable) {
    this.#settings = settings;
    this.#db = db;
  }

  /** As whom a user reads, if he has done so before. */
  known(user: GatewayUser): Reader | undefined {
    return this.#known.get(user);
  }

  /** As whom a user reads pairs of a data type; refuses who cannot. */
  async of(user: GatewayUser, dataType: string): Promise<Reader> {
    const reader = this.#known.get(user) ?? readerOf(user, roleOf(user, dataType, this.#settings));
    await this.#admitted(reader.role);
    this.#known.set(user, reader);
    return reader;
  }

  /** The same for one who has seen something as somebody else, and must see what is newer than that. */
  renewed(reader: Reader): Reader {
    this.#count += 1;
    return { ...reader, name: `${reader.tag} ${this.#count}` };
  }

  #admitted(role: string): Promise<unknown> {
    const asked = this.#roles.get(role);
    if (asked && asked.until > performance.now()) return asked.admitted;
    const admitted = this.#db.query(admit, [role]);
    this.#roles.set(role, { admitted, until: performance.now() + rememberMs });
    return admitted;
  }
}

function roleOf({ anonymous, claims }: GatewayUser, type: string, settings: RlsSettings | undefined): string {
  const refused = (problem: string): PgfreshError => new PgfreshError('PGF_LIVE_PRIVATE', { type, problem });
  if (!settings) throw refused('this gateway is not told how to read them');
  if (anonymous) {
    if (settings.anonymousRole === undefined) throw refused('who has no token may see none');
    return settings.anonymousRole;
  }
  const claimed = settings.roleClaim === undefined ? undefined : claims[settings.roleClaim];
  const role = claimed ?? settings.role;
  if (typeof role === 'string') return role;
  throw refused(`the token does not name a role in its claim ${settings.roleClaim ?? 'role'}`);
}

function readerOf({ id, anonymous, claims: said }: GatewayUser, role: string): Reader {
  // People without names are not told apart: their names are made up.
  const user = anonymous ? '' : id;
  const claims = storableJson({ role, ...said });
  const digest = createHash('sha256')
    .update(JSON.stringify([role, user, claims]))
    .digest('base64url');
  const tag = digest.slice(0, 16).replaceAll('-', '.');
  return { role, user, claims, tag, name: tag };
}
