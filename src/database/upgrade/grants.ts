/**
 * Revokes all rights on our objects from everyone but their owners; the files grant them anew. Without this, a
 * replaced function keeps its old grants. Objects that the engine creates for data types and roles keep their
 * rights, because the files do not grant them.
 */
export const resetGrants = `do $grants$
declare
  v_revoke text;
begin
  for v_revoke in
    with ours as (
      select objid as relation from pgfresh_engine.manifest where ours and classid = 'pg_class'::regclass
      union
      -- Their partitions, and the sequences of their columns.
      select c.oid
      from pgfresh_engine.manifest as m
      join pg_depend as d on d.refclassid = m.classid and d.refobjid = m.objid and d.deptype in ('a', 'i')
      join pg_class as c on d.classid = 'pg_class'::regclass and c.oid = d.objid
      where m.ours and m.classid = 'pg_class'::regclass and c.relkind in ('r', 'p', 'S')
    )
    select distinct format('revoke all on %s %s from %s cascade', held.kind, held.name,
      case when held.grantee = 0 then 'public' else held.grantee::regrole::text end)
    from (
      select 'schema' as kind, quote_ident(n.nspname) as name, n.nspowner as owner, a.grantee
      from pg_namespace as n
      cross join aclexplode(n.nspacl) as a
      where n.oid in (select c.relnamespace from ours join pg_class as c on ours.relation = c.oid)
      union all
      select 'routine', p.oid::regprocedure::text, p.proowner, a.grantee
      from pgfresh_engine.manifest as m
      join pg_proc as p on m.classid = 'pg_proc'::regclass and p.oid = m.objid
      cross join aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a
      where m.ours
      union all
      select case c.relkind when 'S' then 'sequence' else 'table' end, c.oid::regclass::text, c.relowner, a.grantee
      from ours
      join pg_class as c on c.oid = ours.relation
      cross join lateral (
        select grantee from aclexplode(c.relacl)
        union all
        select held.grantee from pg_attribute as b cross join aclexplode(b.attacl) as held where b.attrelid = c.oid
      ) as a
    ) as held
    where held.grantee <> held.owner
  loop
    execute v_revoke;
  end loop;
end
$grants$;`;
