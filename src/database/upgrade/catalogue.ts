import type { Queryable } from '../query.ts';
import { schemas } from '../schema-owner.ts';

/** An object of one of the schemas, as listed in manifests. */
export interface CatalogueObject {
  readonly kind: 'function' | 'view' | 'type' | 'trigger' | 'table' | 'sequence';
  /** Its name and, for a function, its signature, for instance "pgfresh.clock()". */
  readonly identity: string;
  /** What `create or replace` cannot change: argument names and types, the result, columns, attributes. */
  readonly shape: string;
  /** How many arguments have defaults. `create or replace` can raise this number, not lower it. */
  readonly defaults: number;
}

/**
 * Selects the objects of the schemas. Left out: parts of others (indexes, partitions, sequences of columns) and objects
 * that the engine creates for data types and roles. Names always have their schema, whatever the search path.
 */
export const catalogueQuery = `
  with space as (
    select oid, nspname from pg_namespace where nspname in (${schemas.map((name) => `'${name}'`).join(', ')})
  ), type_name as (
    select t.oid, case
      when n.nspname = 'pg_catalog' then format_type(t.oid, null)
      when e.oid is not null then format('%I.%I[]', n.nspname, e.typname)
      else format('%I.%I', n.nspname, t.typname)
    end as name
    from pg_type as t
    join pg_namespace as n on n.oid = t.typnamespace
    left join pg_type as e on e.oid = t.typelem and t.typcategory = 'A'
  ), columns as (
    select a.attrelid, string_agg(
      format('%I %s%s', a.attname, t.name, case when a.atttypmod >= 0 then format('(%s)', a.atttypmod) end),
      ', ' order by a.attnum) as list
    from pg_attribute as a join type_name as t on t.oid = a.atttypid
    where a.attnum > 0 and not a.attisdropped
    group by a.attrelid
  )
  select 'function' as kind, 'pg_proc'::regclass::oid as classid, p.oid as objid,
    format('%I.%I(%s)', s.nspname, p.proname, (
      select string_agg(t.name, ', ' order by a.place)
      from unnest(p.proargtypes::oid[]) with ordinality as a(type, place) join type_name as t on t.oid = a.type
    )) as identity,
    format('%s(%s) %s%s', p.prokind, (
      select string_agg(concat_ws(' ', nullif(a.mode, 'i'), nullif(a.name, ''), t.name), ', ' order by a.place)
      from unnest(coalesce(p.proallargtypes, p.proargtypes::oid[]), p.proargmodes::text[], p.proargnames)
        with ordinality as a(type, mode, name, place)
      join type_name as t on t.oid = a.type
    ), case when p.proretset then 'setof ' end, r.name) as shape,
    p.pronargdefaults::int as defaults
  from pg_proc as p join space as s on s.oid = p.pronamespace left join type_name as r on r.oid = p.prorettype
  where p.proname !~ '^(check|mark|rows|run_as|read_as)_[0-9]+$'
  union all
  select case c.relkind when 'v' then 'view' when 'm' then 'view' when 'S' then 'sequence' else 'table' end,
    'pg_class'::regclass, c.oid, format('%I.%I', s.nspname, c.relname),
    case when c.relkind in ('v', 'm') then columns.list else '' end, 0
  from pg_class as c join space as s on s.oid = c.relnamespace left join columns on columns.attrelid = c.oid
  where c.relkind in ('r', 'p', 'f', 'v', 'm', 'S') and not c.relispartition
    and c.relname !~ '^history_[a-z]+_aside_[0-9]{8}$'
    and not exists (
      select from pg_depend as d
      where c.relkind = 'S' and d.classid = 'pg_class'::regclass and d.objid = c.oid
        and d.refclassid = 'pg_class'::regclass and d.deptype in ('a', 'i'))
  union all
  select 'type', 'pg_type'::regclass, t.oid, format('%I.%I', s.nspname, t.typname), coalesce(columns.list, ''), 0
  from pg_type as t
  join space as s on s.oid = t.typnamespace
  left join pg_class as c on c.oid = t.typrelid
  left join columns on columns.attrelid = c.oid
  where t.typtype in ('d', 'e', 'r') or c.relkind = 'c'
  union all
  select 'trigger', 'pg_trigger'::regclass, g.oid, format('%I on %I.%I', g.tgname, s.nspname, c.relname),
    case when g.tgconstraint <> 0 then 'constraint' else '' end, 0
  from pg_trigger as g join pg_class as c on c.oid = g.tgrelid join space as s on s.oid = c.relnamespace
  where not g.tgisinternal and g.tgparentid = 0`;

/** The objects of the schemas, in an order that does not depend on the server. */
export function readCatalogue(db: Queryable): Promise<CatalogueObject[]> {
  return db.query<CatalogueObject>(
    `select kind, identity, shape, defaults from (${catalogueQuery}) as object
     order by kind collate "C", identity collate "C"`,
  );
}
