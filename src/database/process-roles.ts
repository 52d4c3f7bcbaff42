import pg from 'pg';
import { PgfreshError } from '../errors/index.ts';
import type { Queryable } from './query.ts';

/** The database role that a process's login needs, by what the process runs. */
export const databaseRoles = {
  planner: 'pgfresh_planner',
  worker: 'pgfresh_worker',
  scheduler: 'pgfresh_planner',
  gateway: 'pgfresh_gateway',
  console: 'pgfresh_operator',
} as const;

export type ProcessRole = keyof typeof databaseRoles;

export interface LoginRoles {
  readonly user: string;
  /** What processes with this login may run. */
  readonly roles: readonly ProcessRole[];
}

/** What a login may run: the schema's owner may run everything. */
export async function readLoginRoles(db: Queryable): Promise<LoginRoles> {
  const [row] = await db.query<{ user: string; held: string[] }>(
    `select current_user as "user", array(
       select rolname::text from pg_roles where rolname = any ($1::text[]) and (pg_has_role(oid, 'usage')
         or exists (select from pg_namespace where nspname = 'pgfresh' and pg_has_role(nspowner, 'usage')))) as held`,
    [Object.values(databaseRoles)],
  );
  const { user, held } = row!;
  const all = Object.entries(databaseRoles) as [ProcessRole, string][];
  return { user, roles: all.flatMap(([role, needed]) => (held.includes(needed) ? role : [])) };
}

/** Throws, with the command to run, if the login may not run one of the roles. */
export async function requireLoginRoles(db: Queryable, wanted: readonly ProcessRole[]): Promise<void> {
  const { user, roles } = await readLoginRoles(db);
  const lacking = wanted.filter((role) => !roles.includes(role));
  if (lacking.length === 0) return;
  const needed = [...new Set(lacking.map((role) => databaseRoles[role]))];
  const [row] = await db.query<{ there: boolean }>(
    'select count(*) = cardinality($1::text[]) as there from pg_roles where rolname = any ($1::text[])',
    [needed],
  );
  // Missing roles come with the migration; others report that it is missing.
  if (row!.there) throw lacksRoles(user, lacking, needed);
}

function lacksRoles(user: string, lacking: readonly ProcessRole[], needed: readonly string[]): PgfreshError {
  return new PgfreshError('PGF_DATABASE_RIGHTS', {
    user,
    problem: `it may not run the role${lacking.length === 1 ? '' : 's'} ${lacking.join(', ')}`,
    who: 'a superuser or a role that may grant roles',
    grant: `grant ${needed.join(', ')} to ${pg.escapeIdentifier(user)}; "pgfresh migrate --grants ${lacking.map((role) => `${role}=${user}`).join(',')}" prints all that it needs`,
  });
}
