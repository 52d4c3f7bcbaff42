import pg from 'pg';
import { PgfreshError } from '../errors/index.ts';
import type { Queryable } from './query.ts';

/** Throws, with the grant to run, if the login may not create what a migration creates. */
export async function requireCreate(tx: Queryable): Promise<void> {
  const [row] = await tx.query<{ user: string; database: string; installed: boolean; may: boolean }>(`
    select current_user as "user", current_database() as database, schema.oid is not null as installed,
      coalesce(has_schema_privilege(schema.oid, 'usage') and has_schema_privilege(schema.oid, 'create'),
               has_database_privilege(current_database(), 'create')) as may
    from (select to_regnamespace('pgfresh')::oid as oid) as schema`);
  const { user, database, installed, may } = row!;
  if (may) return;
  const on = installed ? 'usage, create on schema pgfresh' : `create on database ${pg.escapeIdentifier(database)}`;
  throw lacks(user, 'it may not create objects in the schema "pgfresh"', [on]);
}

/** The error of a login that may not even see what was applied. */
export function lacksReading(user: string, cause: unknown): PgfreshError {
  const missing = ['usage on schema pgfresh', 'select on pgfresh.migrations'];
  return lacks(user, 'it may not read the table pgfresh.migrations', missing, cause);
}

function lacks(user: string, problem: string, rights: readonly string[], cause?: unknown): PgfreshError {
  const grant = rights.map((right) => `grant ${right} to ${pg.escapeIdentifier(user)};`).join(' ');
  return new PgfreshError('PGF_DATABASE_RIGHTS', { user, problem, grant }, { cause });
}
