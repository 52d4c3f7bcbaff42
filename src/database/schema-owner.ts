import { PgfreshError } from '../errors/index.ts';
import type { Queryable } from './query.ts';

/** The public schema, and the internal one. */
export const schemas = ['pgfresh', 'pgfresh_engine'];

/**
 * The first reason not to work in the schema. The owner of a table or function there can make it run their code as
 * the login that migrates, so the owner must be one who could do so anyway: ourselves, a role whose rights we
 * have, the owner of the database, a superuser. A superuser has every role's rights, which does not imply trust in it.
 */
const foreignObject = `with ours as (
  select oid, nspowner from pg_namespace where nspname in ('pgfresh', 'pgfresh_engine')
), object (classid, objid, owner) as (
  select 'pg_namespace'::regclass, oid, nspowner from ours
  union all
  select 'pg_class'::regclass, pg_class.oid, relowner from pg_class join ours on relnamespace = ours.oid
  union all
  select 'pg_proc'::regclass, pg_proc.oid, proowner from pg_proc join ours on pronamespace = ours.oid
  union all
  select 'pg_type'::regclass, pg_type.oid, typowner from pg_type join ours on typnamespace = ours.oid
), problem (text) as (
  select format('%s belongs to %I', pg_describe_object(classid, objid, 0), pg_get_userbyid(owner))
  from object
  join pg_roles as me on me.rolname = current_user
  left join pg_roles as role on role.oid = object.owner
  where not (
    owner = me.oid
    or coalesce(role.rolsuper, false)
    -- Made by ourselves, to ask users' tables with its rights instead of ours.
    or (classid = 'pg_proc'::regclass and owner = to_regrole('pgfresh_evaluator'))
    -- Made by ourselves too, to run the jobs of a role or to read as one. No owner of one can write another text into it.
    or (classid = 'pg_proc'::regclass and (select proname ~ '^(run|read)_as_[0-9]+$' from pg_proc where pg_proc.oid = objid))
    or owner = (select datdba from pg_database where datname = current_database())
    or (not me.rolsuper and pg_has_role(owner, 'usage')))
  union all
  select format('it holds %s, but no record of migrations', pg_describe_object(classid, objid, 0))
  from object
  where classid <> 'pg_namespace'::regclass
    and not exists (select from pg_class join ours on relnamespace = ours.oid where relname = 'migrations')
)
select text from problem limit 1`;

/** The same refusal, for a script that another login runs. */
export const foreignObjectGuard = `do $guard$
declare
  problem text := (${foreignObject});
begin
  if problem is not null then
    raise exception 'PGF_SCHEMA_FOREIGN: the schema pgfresh or pgfresh_engine is not to be trusted: %', problem;
  end if;
end
$guard$;`;

/** Call before a privileged login reads or changes anything in the schema. */
export async function requireOwnSchema(tx: Queryable): Promise<void> {
  const [found] = await tx.query<{ text: string }>(foreignObject);
  if (found) throw new PgfreshError('PGF_SCHEMA_FOREIGN', { problem: found.text });
}
