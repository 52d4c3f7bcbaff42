import type { Queryable } from '../../src/database/index.ts';

/**
 * Everything about the schemas that an upgrade and a new installation must agree in, by object: arguments, bodies,
 * columns, constraints, indexes, policies, owners, grants and comments; and our triggers on users' tables.
 */
export async function describeSchemas(db: Queryable): Promise<Record<string, unknown>> {
  const rows = await db.query<{ name: string; description: unknown }>(query);
  return Object.fromEntries(rows.map(({ name, description }) => [name, description]));
}

/** The objects in which two descriptions differ, each with both. */
export function differences(one: Record<string, unknown>, other: Record<string, unknown>): Record<string, unknown[]> {
  const names = new Set([...Object.keys(one), ...Object.keys(other)]);
  const isSame = (name: string): boolean => JSON.stringify(one[name]) === JSON.stringify(other[name]);
  return Object.fromEntries([...names].filter((name) => !isSame(name)).map((name) => [name, [one[name], other[name]]]));
}

const grants = (acl: string, kind: string, owner: string): string => `array(
  select format('%s: %s', case a.grantee when 0 then 'public' else a.grantee::regrole::text end, a.privilege_type)
  from aclexplode(coalesce(${acl}, acldefault(${kind}, ${owner}))) as a order by 1)`;

const query = `with space as (
  select * from pg_namespace where nspname in ('pgfresh', 'pgfresh_engine')
), relation as (
  -- The partitions of a day are those of the day.
  select c.* from pg_class as c join space on space.oid = c.relnamespace where not c.relispartition
)
select 'schema ' || nspname as name, jsonb_build_object('owner', nspowner::regrole, 'comment', obj_description(oid, 'pg_namespace'),
  'grants', ${grants('nspacl', `'n'`, 'nspowner')}) as description
from space
union all
select 'function ' || p.oid::regprocedure, jsonb_build_object('definition', pg_get_functiondef(p.oid),
  'owner', p.proowner::regrole, 'comment', obj_description(p.oid, 'pg_proc'), 'grants', ${grants('p.proacl', `'f'`, 'p.proowner')})
from pg_proc as p join space on space.oid = p.pronamespace
union all
select 'relation ' || r.oid::regclass, jsonb_build_object('kind', r.relkind, 'persistence', r.relpersistence,
  'options', r.reloptions, 'security', array[r.relrowsecurity, r.relforcerowsecurity], 'owner', r.relowner::regrole,
  'comment', coalesce(obj_description(r.oid, 'pg_class'), obj_description(r.reltype, 'pg_type')),
  'view', case r.relkind when 'v' then pg_get_viewdef(r.oid) end, 'partitions', pg_get_partkeydef(r.oid),
  'grants', ${grants('r.relacl', `case r.relkind when 'S' then 's' else 'r' end::"char"`, 'r.relowner')},
  'sequence', (select to_jsonb(s) - 'seqrelid' from pg_sequence as s where s.seqrelid = r.oid),
  'columns', (
    select jsonb_agg(jsonb_build_array(a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
      a.attgenerated, a.attcollation::regcollation, a.attstorage, a.attacl::text, col_description(r.oid, a.attnum),
      (select pg_get_expr(d.adbin, d.adrelid) from pg_attrdef as d where d.adrelid = r.oid and d.adnum = a.attnum))
      order by a.attnum)
    from pg_attribute as a where a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped))
from relation as r where r.relkind in ('r', 'p', 'v', 'm', 'S', 'c')
union all
select format('constraint %s of %s', c.conname, coalesce(nullif(c.conrelid, 0)::regclass::text, c.contypid::regtype::text)),
  jsonb_build_object('definition', pg_get_constraintdef(c.oid), 'valid', c.convalidated,
    'deferrable', array[c.condeferrable, c.condeferred])
from pg_constraint as c join relation as r on r.oid = c.conrelid
union all
select 'index ' || i.indexrelid::regclass, jsonb_build_object('definition', pg_get_indexdef(i.indexrelid), 'valid', i.indisvalid)
from pg_index as i join relation as r on r.oid = i.indrelid
union all
select format('trigger %s on %s', t.tgname, t.tgrelid::regclass),
  jsonb_build_object('definition', pg_get_triggerdef(t.oid), 'enabled', t.tgenabled)
from pg_trigger as t
where not t.tgisinternal and t.tgparentid = 0 and (t.tgrelid in (select oid from relation)
  or t.tgfoid in (select p.oid from pg_proc as p join space on space.oid = p.pronamespace))
union all
select format('policy %s of %s', p.polname, p.polrelid::regclass),
  jsonb_build_object('command', p.polcmd, 'permissive', p.polpermissive, 'roles', p.polroles::regrole[]::text,
    'using', pg_get_expr(p.polqual, p.polrelid), 'check', pg_get_expr(p.polwithcheck, p.polrelid))
from pg_policy as p join relation as r on r.oid = p.polrelid
order by 1`;
