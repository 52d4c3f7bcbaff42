import { createHash } from 'node:crypto';
import type { RlsReader } from '../../changes/index.ts';
import type { GatewayUser, RlsSettings } from '../../config/index.ts';
import { storableJson, type Queryable } from '../../database/index.ts';
import { PgfreshError } from '../../errors/index.ts';

const checkRole = 'select pgfresh_engine.admit_viewer_role($1::text)';
const roleCacheMs = 5_000;

/** Maps users to the roles and claims with which they read under row security. Roles are checked every few seconds. */
export class RlsReaders {
  readonly #settings: RlsSettings | undefined;
  readonly #db: Queryable;
  readonly #readers = new WeakMap<GatewayUser, RlsReader>();
  readonly #roles = new Map<string, { readonly checked: Promise<unknown>; readonly until: number }>();
  #ownReads = 0;

  constructor(settings: RlsSettings | undefined, db: Queryable) {
    this.#settings = settings;
    this.#db = db;
  }

  /** The reader of a user who has read before. */
  cached(user: GatewayUser): RlsReader | undefined {
    return this.#readers.get(user);
  }

  /** The reader of a user for a data type; throws if the user cannot read it. */
  async readerOf(user: GatewayUser, dataType: string): Promise<RlsReader> {
    const reader = this.#readers.get(user) ?? createReader(user, roleOf(user, dataType, this.#settings));
    await this.#checkRole(reader.role);
    this.#readers.set(user, reader);
    return reader;
  }

  /** The same reader with reads of its own: for clients that saw rows as another reader and must now see newer ones. */
  withOwnReads(reader: RlsReader): RlsReader {
    this.#ownReads += 1;
    return { ...reader, group: `${reader.tag} ${this.#ownReads}` };
  }

  #checkRole(role: string): Promise<unknown> {
    const cached = this.#roles.get(role);
    if (cached && cached.until > performance.now()) return cached.checked;
    const checked = this.#db.query(checkRole, [role]);
    this.#roles.set(role, { checked, until: performance.now() + roleCacheMs });
    return checked;
  }
}

function roleOf({ anonymous, claims }: GatewayUser, type: string, settings: RlsSettings | undefined): string {
  const refused = (problem: string): PgfreshError => new PgfreshError('PGF_LIVE_PRIVATE', { type, problem });
  if (!settings) throw refused('gateway.rls is not configured');
  if (anonymous) {
    if (settings.anonymousRole === undefined) throw refused('anonymous viewers have no role (rls.anonymousRole)');
    return settings.anonymousRole;
  }
  const claimed = settings.roleClaim === undefined ? undefined : claims[settings.roleClaim];
  const role = claimed ?? settings.role;
  if (typeof role === 'string') return role;
  throw refused(`the token does not name a role in its claim ${settings.roleClaim ?? 'role'}`);
}

function createReader({ id, anonymous, claims: tokenClaims }: GatewayUser, role: string): RlsReader {
  // Anonymous users have generated ids, so they all count as one user.
  const user = anonymous ? '' : id;
  const claims = storableJson({ role, ...tokenClaims });
  const digest = createHash('sha256')
    .update(JSON.stringify([role, user, claims]))
    .digest('base64url');
  const tag = digest.slice(0, 16).replaceAll('-', '.');
  return { role, user, claims, tag, group: tag };
}
