import type { Queryable } from '../src/database/index.ts';

export interface SqlFunction {
  readonly schema: string;
  readonly name: string;
  readonly arguments: string;
  readonly result: string;
  readonly comment: string | null;
  readonly body: string;
  /** Its fixed search path; null if it uses the caller's. */
  readonly searchPath: string | null;
  readonly forEverybody: boolean;
}

export interface SqlRelation {
  readonly schema: string;
  readonly name: string;
  readonly kind: 'table' | 'view' | 'type';
  readonly comment: string | null;
  readonly columns: readonly string[];
  readonly forEverybody: boolean;
}

/** The functions of both schemas, by name. */
export function readFunctions(db: Queryable): Promise<SqlFunction[]> {
  return db.query<SqlFunction>(
    `select p.pronamespace::regnamespace::text as schema, p.proname as name, pg_get_function_arguments(p.oid) as arguments, pg_get_function_result(p.oid) as result,
       obj_description(p.oid, 'pg_proc') as comment, p.prosrc as body,
       (select substr(setting, 13) from unnest(p.proconfig) as setting where setting like 'search_path=%') as "searchPath",
       has_function_privilege('public', p.oid, 'execute') as "forEverybody"
     from pg_proc as p where p.pronamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace) order by p.proname, p.oid`,
  );
}

/** Tables, views and row types of both schemas, by name. A partition is part of its table. */
export function readRelations(db: Queryable): Promise<SqlRelation[]> {
  return db.query<SqlRelation>(
    `select c.relnamespace::regnamespace::text as schema, c.relname as name, case c.relkind when 'v' then 'view' when 'c' then 'type' else 'table' end as kind,
       coalesce(obj_description(c.oid, 'pg_class'), obj_description(c.reltype, 'pg_type')) as comment,
       array(select a.attname || ' ' || format_type(a.atttypid, a.atttypmod) from pg_attribute as a
         where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum) as columns,
       c.relkind <> 'c' and (has_table_privilege('public', c.oid, 'select, insert, update, delete, truncate, references, trigger')
         or has_any_column_privilege('public', c.oid, 'select, insert, update, references')) as "forEverybody"
     from pg_class as c
     where c.relnamespace in ('pgfresh'::regnamespace, 'pgfresh_engine'::regnamespace) and c.relkind in ('r', 'p', 'v', 'm', 'c') and not c.relispartition
     order by c.relname`,
  );
}
