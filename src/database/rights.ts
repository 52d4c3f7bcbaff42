import pg from 'pg';
import { PgfreshError } from '../errors/index.ts';
import type { Queryable } from './query.ts';
import { schemas } from './schema-owner.ts';

/** Throws what would keep the login from migrating. A login that only uses another's schema never migrates. */
export async function requireMigrationRights(db: Queryable): Promise<void> {
  const [schema] = await db.query<{ owned: boolean }>(
    `select pg_has_role(nspowner, 'usage') as owned from pg_namespace where nspname = 'pgfresh'`,
  );
  if (schema?.owned === false) return;
  await requireCreate(db);
  await requireRoles(db);
}

/** Throws, with the grant to run, if the login may not create what a migration creates. */
export async function requireCreate(tx: Queryable): Promise<void> {
  const [row] = await tx.query<{ user: string; database: string; missing: boolean; closed: string[] }>(
    `
    select current_user as "user", current_database() as database,
      bool_or(oid is null) and not has_database_privilege(current_database(), 'create') as missing,
      coalesce(array_agg(name order by name) filter (
        where not (has_schema_privilege(oid, 'usage') and has_schema_privilege(oid, 'create'))), '{}') as closed
    from (select name, to_regnamespace(name)::oid as oid from unnest($1::text[]) as name) as schema`,
    [schemas],
  );
  const { user, database, missing, closed } = row!;
  if (!missing && closed.length === 0) return;
  const rights = [
    ...(missing ? [`create on database ${pg.escapeIdentifier(database)}`] : []),
    ...closed.map((schema) => `usage, create on schema ${schema}`),
  ];
  throw lacks(user, `it may not create objects in the schemas ${schemas.join(' and ')}`, rights);
}

/** The roles that functions are granted to, and the one that reads users' tables. Roles belong to the whole server. */
export const databaseRoleNames: readonly string[] = [
  'pgfresh_worker',
  'pgfresh_planner',
  'pgfresh_gateway',
  'pgfresh_monitor',
  'pgfresh_operator',
  'pgfresh_scheduler',
  'pgfresh_viewer',
  'pgfresh_evaluator',
];

/** Throws, with the command to run, if roles are missing that the login may neither create nor join. */
export async function requireRoles(tx: Queryable): Promise<void> {
  const [row] = await tx.query<{ user: string; missing: string[]; creates: boolean; member: boolean }>(
    `select me.rolname as "user", array(select name from unnest($1::text[]) as name where to_regrole(name) is null) as missing,
       me.rolsuper or me.rolcreaterole as creates,
       evaluator.oid is not null and (pg_has_role(me.oid, evaluator.oid, 'usage') or pg_has_role(me.oid, evaluator.oid, 'member with admin option')
         or (me.rolcreaterole and current_setting('server_version_num')::int < 160000)) as member
     from pg_roles as me left join pg_roles as evaluator on evaluator.rolname = 'pgfresh_evaluator' where me.rolname = current_user`,
    [databaseRoleNames],
  );
  const { user, missing, creates, member } = row!;
  if (missing.length === 0 ? member : creates && (member || missing.includes('pgfresh_evaluator'))) return;
  const create = creates ? '' : missing.map((role) => `create role ${role} nologin; `).join('');
  const problem = `it may not create or use the roles of pgfresh`;
  const grant = `${create}grant pgfresh_evaluator to ${pg.escapeIdentifier(user)};`;
  // Owning the database implies neither.
  const who = `a superuser or a role with ${create === '' ? 'the ADMIN option of it' : 'CREATEROLE'}`;
  throw new PgfreshError('PGF_DATABASE_RIGHTS', { user, problem, who, grant });
}

/** The error for a login that may not even read what was applied. */
export function lacksReading(user: string, cause?: unknown): PgfreshError {
  const missing = [
    'usage on schema pgfresh, pgfresh_engine',
    'select on pgfresh.migrations, pgfresh_engine.installation, pgfresh_engine.manifest',
  ];
  return lacks(user, 'it may not read which migrations were applied', missing, cause);
}

function lacks(user: string, problem: string, rights: readonly string[], cause?: unknown): PgfreshError {
  const grant = rights.map((right) => `grant ${right} to ${pg.escapeIdentifier(user)};`).join(' ');
  const who = "a superuser or the database's owner";
  return new PgfreshError('PGF_DATABASE_RIGHTS', { user, problem, who, grant }, { cause });
}
