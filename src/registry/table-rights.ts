import type { Queryable } from '../database/index.ts';

export type TableRight = 'select' | 'insert' | 'update' | 'delete';

/** The current login's rights on a table and its sequences. Names are quoted. */
export interface TableRights {
  readonly user: string;
  readonly schema: string;
  readonly table: string;
  readonly usage: boolean;
  readonly lacks: readonly TableRight[];
  /** The sequences of its defaults; those of identity columns need no grant. */
  readonly sequences: readonly { readonly name: string; readonly usable: boolean }[];
  /** Row security applies to the login, and no policy allows these. */
  readonly hidden: readonly TableRight[];
}

/** By table name as in the registry and configuration; missing tables are left out. */
export async function readTableRights(db: Queryable, tables: readonly string[]): Promise<Map<string, TableRights>> {
  const rows = await db.query<TableRights & { name: string }>(
    `select wanted.name, quote_ident(current_user) as "user", quote_ident(n.nspname) as schema, format('%I.%I', n.nspname, c.relname) as "table",
      has_schema_privilege(n.oid, 'usage') as usage,
      -- A right on all columns, one by one, is as good as one on the table.
      array(select r.name from unnest('{select,insert,update,delete}'::text[]) as r(name)
        where not has_table_privilege(c.oid, r.name) and (r.name = 'delete' or exists (
          select from pg_attribute as a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = '' and not has_column_privilege(c.oid, a.attnum, r.name)))) as lacks,
      coalesce((select json_agg(json_build_object('name', format('%s.%I', s.relnamespace::regnamespace, s.relname), 'usable', has_sequence_privilege(s.oid, 'usage, update')) order by s.oid)
        from pg_attrdef as d join pg_depend as p on p.classid = 'pg_attrdef'::regclass and p.objid = d.oid and p.refclassid = 'pg_class'::regclass
        join pg_class as s on s.oid = p.refobjid and s.relkind = 'S' where d.adrelid = c.oid), '[]') as sequences,
      array(select r.name from unnest('{select,insert,update,delete}'::text[], '{r,a,w,d}'::"char"[]) as r(name, command)
        where row_security_active(c.oid) and not exists (
          select from pg_policy as y where y.polrelid = c.oid and y.polpermissive and y.polcmd in ('*', r.command)
            and exists (select from unnest(y.polroles) as role where role = 0 or pg_has_role(role, 'usage')))) as hidden
    from unnest($1::text[]) as wanted(name)
    cross join lateral (select case when position('.' in wanted.name) = 0 then array['public', wanted.name] else string_to_array(wanted.name, '.') end as parts) as p
    join pg_namespace as n on n.nspname = p.parts[1]
    join pg_class as c on c.relnamespace = n.oid and c.relname = p.parts[2] and c.relkind in ('r', 'p', 'f')`,
    [[...new Set(tables)]],
  );
  return new Map(rows.map(({ name, ...rights }) => [name, rights]));
}

/** The statements that give the login the rights it lacks on the table. */
export function missingGrants(rights: TableRights, needed: readonly TableRight[]): string[] {
  const { user, schema, table, usage, lacks, sequences, hidden } = rights;
  const lacking = needed.filter((right) => lacks.includes(right));
  const unusable = sequences.filter(({ usable }) => !usable).map(({ name }) => name);
  return [
    ...(usage ? [] : [`grant usage on schema ${schema} to ${user};`]),
    ...(lacking.length === 0 ? [] : [`grant ${lacking.join(', ')} on ${table} to ${user};`]),
    ...(unusable.length === 0 || !needed.includes('insert')
      ? []
      : [`grant usage on sequence ${unusable.join(', ')} to ${user};`]),
    ...(needed.some((right) => hidden.includes(right))
      ? [`create policy pgfresh_worker on ${table} to ${user} using (true) with check (true);`]
      : []),
  ];
}

/** The statements for all rights needed on the table. `to` is quoted. */
export function tableGrants(
  { schema, table, sequences }: TableRights,
  rights: readonly TableRight[],
  to: string,
): string[] {
  return [
    `grant usage on schema ${schema} to ${to};`,
    `grant ${rights.join(', ')} on ${table} to ${to};`,
    ...(rights.includes('insert') ? sequences.map(({ name }) => `grant usage on sequence ${name} to ${to};`) : []),
  ];
}
