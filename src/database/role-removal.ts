import pg from 'pg';
import type { Queryable } from './query.ts';
import { databaseRoleNames } from './rights.ts';

export interface RoleRemoval {
  /** Rights of pgfresh's roles on objects outside its schemas, and policies for them. */
  readonly rights: readonly string[];
  readonly dropped: readonly string[];
  readonly kept: readonly KeptRole[];
}

interface KeptRole {
  readonly role: string;
  readonly reason: string;
}

interface RoleUse {
  readonly role: string;
  readonly object: string;
  /** Null for restrictive policies, for kinds of objects that pgfresh never grants rights on, and where the role owns the object. */
  readonly revoke: string | null;
  /** Whether this login owns the object. */
  readonly allowed: boolean;
}

interface RoleHolder {
  readonly role: string;
  readonly databases: readonly string[];
  readonly policies: readonly string[];
  readonly droppable: boolean;
}

/**
 * The roles' rights and objects in this database and on the server, from PostgreSQL's dependencies for DROP ROLE.
 * DROP OWNED is no alternative: it also revokes rights on other databases, and drops what a role owns.
 */
const roleUses = `with ours as (
  select oid, rolname from pg_roles where rolname = any ($1::text[])
), used as (
  select d.*, ours.rolname
  from pg_shdepend as d
  join ours on d.refobjid = ours.oid
  where d.refclassid = 'pg_authid'::regclass
    and (d.dbid = (select oid from pg_database where datname = current_database())
      -- Parameters, tablespaces and other objects of the whole server.
      or (d.dbid = 0 and d.classid not in ('pg_database'::regclass, 'pg_auth_members'::regclass))
      -- Memberships go with both of their roles, and not with the role that granted them. Before 16 they have no oid.
      or (d.classid = 'pg_auth_members'::regclass and exists (
        select from pg_auth_members as m
        where (to_jsonb(m) ->> 'oid')::oid = d.objid and m.grantor = ours.oid and ours.oid not in (m.roleid, m.member)))
      or (d.classid = 'pg_database'::regclass and d.objid = (select oid from pg_database where datname = current_database())))
)
select u.rolname as role, pg_describe_object(u.classid, u.objid, u.objsubid) as object,
  case
    when u.deptype not in ('a', 'r') then null
    when c.oid is not null then format('revoke all on table %s from %I', c.oid::regclass, u.rolname)
    when f.oid is not null then format('revoke all on routine %s from %I', f.oid::regprocedure, u.rolname)
    when n.oid is not null then format('revoke all on schema %I from %I', n.nspname, u.rolname)
    when t.oid is not null then format('revoke all on type %s from %I', t.oid::regtype, u.rolname)
    when b.oid is not null then format('revoke all on database %I from %I', b.datname, u.rolname)
    when a.oid is not null then format('alter default privileges for role %s%s revoke all on %s from %I',
      a.defaclrole::regrole, ' in schema ' || nullif(a.defaclnamespace, 0)::regnamespace::text,
      case a.defaclobjtype when 'r' then 'tables' when 'S' then 'sequences' when 'f' then 'routines'
        when 'T' then 'types' when 'n' then 'schemas' end, u.rolname)
    -- A restrictive policy also binds the members of its roles: without it they would see more.
    when p.oid is not null and not p.polpermissive then null
    when p.oid is not null and p.others is null then format('drop policy %I on %s', p.polname, p.polrelid::regclass)
    when p.oid is not null then format('alter policy %I on %s to %s', p.polname, p.polrelid::regclass, p.others)
  end as revoke,
  coalesce(pg_has_role(
    coalesce(c.relowner, f.proowner, n.nspowner, t.typowner, b.datdba, a.defaclrole, p.owner), 'usage'), false) as allowed
from used as u
left join pg_class as c on u.classid = 'pg_class'::regclass and c.oid = u.objid
left join pg_proc as f on u.classid = 'pg_proc'::regclass and f.oid = u.objid
left join pg_namespace as n on u.classid = 'pg_namespace'::regclass and n.oid = u.objid
left join pg_type as t on u.classid = 'pg_type'::regclass and t.oid = u.objid
left join pg_database as b on u.classid = 'pg_database'::regclass and b.oid = u.objid
left join pg_default_acl as a on u.classid = 'pg_default_acl'::regclass and a.oid = u.objid
left join lateral (
  select o.oid, o.polname, o.polrelid, o.polpermissive, r.relowner as owner, r.relnamespace::regnamespace::text as schema, (
    select string_agg(case when role = 0 then 'public' else role::regrole::text end, ', ')
    from unnest(o.polroles) as role
    where role not in (select oid from ours)
  ) as others
  from pg_policy as o
  join pg_class as r on r.oid = o.polrelid
  where u.classid = 'pg_policy'::regclass and o.oid = u.objid
) as p on true
where coalesce(n.nspname, p.schema, (pg_identify_object(u.classid, u.objid, u.objsubid)).schema, '')
  not in ('pgfresh', 'pgfresh_engine')
order by role, object`;

/** Where else a role is used, the restrictive policies that bind its members through it, and whether this login may drop it. */
const roleHolders = `select r.rolname as role, array(
    select distinct other.datname::text
    from pg_shdepend as d
    join pg_database as other
      on other.oid = case when d.classid = 'pg_database'::regclass then d.objid else d.dbid end
    where d.refclassid = 'pg_authid'::regclass and d.refobjid = r.oid and other.datname <> current_database()
    order by 1
  ) as databases, array(
    select pg_describe_object('pg_policy'::regclass, p.oid, 0)
    from pg_policy as p
    join pg_class as c on c.oid = p.polrelid
    where not p.polpermissive and c.relnamespace::regnamespace::text not in ('pgfresh', 'pgfresh_engine')
      and exists (
        select from unnest(p.polroles) as bound
        where bound not in (0, r.oid) and pg_has_role(r.oid, bound, 'usage'))
    order by 1
  ) as policies,
  me.rolsuper or (me.rolcreaterole and (current_setting('server_version_num')::int < 160000
    or pg_has_role(me.oid, r.oid, 'member with admin option'))) as droppable
from pg_roles as r
join pg_roles as me on me.rolname = current_user
where r.rolname = any ($1::text[])
order by role`;

/** What `removeRoles` would do now. Rights within pgfresh's schemas go with the schemas. */
export async function previewRoleRemoval(db: Queryable): Promise<RoleRemoval> {
  const uses = await db.query<RoleUse>(roleUses, [databaseRoleNames]);
  const [revoked, left] = [uses.filter(isRevocable), uses.filter((use) => !isRevocable(use))];
  return removal(db, revoked, left);
}

/** Revokes the roles' rights in this database, then drops each role that nothing else uses. */
export async function removeRoles(tx: Queryable): Promise<RoleRemoval> {
  const revoked = (await tx.query<RoleUse>(roleUses, [databaseRoleNames])).filter(isRevocable);
  for (const statement of new Set(revoked.map(({ revoke }) => revoke!))) await tx.query(statement);
  const done = await removal(tx, revoked, await tx.query<RoleUse>(roleUses, [databaseRoleNames]));
  for (const role of done.dropped) await tx.query(`drop role ${pg.escapeIdentifier(role)}`);
  return done;
}

function isRevocable({ revoke, allowed }: RoleUse): boolean {
  return revoke !== null && allowed;
}

async function removal(db: Queryable, revoked: readonly RoleUse[], left: readonly RoleUse[]): Promise<RoleRemoval> {
  const holders = await db.query<RoleHolder>(roleHolders, [databaseRoleNames]);
  const reasons = holders.map(({ role, databases, policies, droppable }) => {
    const uses = left.filter((use) => use.role === role).map(({ object }) => object);
    if (databases.length > 0) return { role, reason: `used by the database ${databases.join(', ')}` };
    if (uses.length > 0) return { role, reason: `still used by ${uses.join(', ')}` };
    if (policies.length > 0) return { role, reason: `its members are restricted by ${policies.join(', ')}` };
    return { role, reason: droppable ? '' : 'this login may not drop it' };
  });
  return {
    rights: [...new Set(revoked.map(({ role, object }) => `${role} on ${object}`))],
    dropped: reasons.filter(({ reason }) => reason === '').map(({ role }) => role),
    kept: reasons.filter(({ reason }) => reason !== ''),
  };
}
