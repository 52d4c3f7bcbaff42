import type { Queryable } from '../database/index.ts';

/** A column of a user's table, with what a writer of rows needs to know. */
export interface TableColumn {
  readonly name: string;
  /** As PostgreSQL displays it, for messages. */
  readonly type: string;
  /** The name of its type, or of the base type of its domain; "array" for arrays. */
  readonly base: string;
  readonly required: boolean;
  /** Whether PostgreSQL fills it in itself. */
  readonly filled: boolean;
  /** The default expression of the column or its domain. */
  readonly default: string | null;
  /** Whether it is an identity column, whose value no expression gives. */
  readonly identity: boolean;
}

/** The columns of tables, by the table names of the configuration. */
export async function mirroredColumns(
  database: Queryable,
  tables: readonly string[],
): Promise<Map<string, TableColumn[]>> {
  // A default refers to no column. If given the table, pg_get_expr would wait for a lock on it.
  const rows = await database.query<TableColumn & { table: string }>(
    `select wanted.name as "table", a.attname as name, format_type(a.atttypid, a.atttypmod) as type,
      case when base.typcategory = 'A' then 'array' when base.typtype = 'e' then 'enum' else base.typname end as base,
      a.attnotnull or t.typnotnull as required,
      a.atthasdef or a.attidentity <> '' or a.attgenerated <> '' as filled,
      case when a.attgenerated = '' then coalesce(pg_get_expr(d.adbin, 0), pg_get_expr(t.typdefaultbin, 0)) end as default,
      a.attidentity <> '' as identity
    from unnest($1::text[]) as wanted(name)
    cross join lateral (select case when position('.' in wanted.name) = 0 then array['public', wanted.name] else string_to_array(wanted.name, '.') end as parts) as p
    join pg_namespace as n on n.nspname = p.parts[1]
    join pg_class as c on c.relnamespace = n.oid and c.relname = p.parts[2] and c.relkind in ('r', 'p', 'v', 'm', 'f')
    join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    left join pg_attrdef as d on d.adrelid = c.oid and d.adnum = a.attnum
    join pg_type as t on t.oid = a.atttypid
    join pg_type as base on base.oid = case when t.typtype = 'd' then t.typbasetype else t.oid end
    order by wanted.name, a.attnum`,
    [[...new Set(tables)]],
  );
  return Map.groupBy(rows, ({ table }) => table);
}
