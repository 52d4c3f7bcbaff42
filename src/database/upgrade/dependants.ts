import { PgfreshError, problemOf } from '../../errors/index.ts';
import type { Queryable } from '../query.ts';

/** A user's view that depends on an object which the upgrade drops or replaces. */
export interface Dependant {
  readonly relation: number;
  readonly name: string;
  readonly drop: string;
  /** Recreates it with its options, owner, rights and comments. */
  readonly create: string;
}

/** Selects the views among the objects in the way, dependencies first. `blocked` selects their oids. */
const dependantsQuery = (blocked: string): string => `
select v.oid as relation, v.name, format('drop view %s', v.name) as drop, concat_ws(E';\\n',
  format('create view %s%s as%s%s', v.name, ' with (' || array_to_string(v.reloptions, ', ') || ')', E'\\n',
    rtrim(pg_get_viewdef(v.oid), ';')),
  -- Default privileges may have granted rights that the view did not have. A quoted body: names are written by users.
  format('do %L', format($revoke$
declare
  v_role text;
begin
  for v_role in
    select distinct case a.grantee when 0 then 'public' else a.grantee::regrole::text end
    from pg_class as c cross join aclexplode(c.relacl) as a
    where c.oid = %1$L::regclass and a.grantee <> c.relowner
  loop
    execute format('revoke all on %%s from %%s', %1$L, v_role);
  end loop;
end
$revoke$, v.name)),
  format('alter view %s owner to %s', v.name, v.relowner::regrole),
  (
    select string_agg(format('grant %s%s on %s to %s%s', a.privilege_type, ' (' || a.part || ')', v.name,
      case a.grantee when 0 then 'public' else a.grantee::regrole::text end,
      case when a.is_grantable then ' with grant option' end), E';\\n' order by a.part nulls first, a.grantee, a.privilege_type)
    from (
      select null as part, held.* from aclexplode(v.relacl) as held
      union all
      select quote_ident(b.attname), held.*
      from pg_attribute as b cross join aclexplode(b.attacl) as held
      where b.attrelid = v.oid and not b.attisdropped
    ) as a
    where a.grantee <> v.relowner
  ),
  (
    select string_agg(format('comment on %s is %L', d.subject, d.words), E';\\n' order by d.place)
    from (
      select 0 as place, format('view %s', v.name) as subject, obj_description(v.oid, 'pg_class') as words
      union all
      select b.attnum, format('column %s.%I', v.name, b.attname), col_description(v.oid, b.attnum)
      from pg_attribute as b
      where b.attrelid = v.oid and b.attnum > 0
    ) as d
    where d.words is not null
  )) as create
from (
  select c.*, c.oid::regclass::text as name from pg_class as c where c.oid in (${blocked}) and c.relkind = 'v'
) as v
-- What has more than this cannot be made again from it.
where not exists (select from pg_trigger as t where t.tgrelid = v.oid and not t.tgisinternal)
  and not exists (select from pg_rewrite as r where r.ev_class = v.oid and r.rulename <> '_RETURN')
  and not exists (select from pg_attrdef as d where d.adrelid = v.oid)
order by v.oid`;

export function readDependants(db: Queryable, blocked: string): Promise<Dependant[]> {
  return db.query<Dependant>(dependantsQuery(blocked));
}

/** Drops only these views, dependants first. */
export async function dropDependants(tx: Queryable, dependants: readonly Dependant[]): Promise<void> {
  for (const { name, drop } of dependants.toReversed()) await attempt(tx, name, drop);
}

export async function recreateDependants(tx: Queryable, dependants: readonly Dependant[]): Promise<void> {
  for (const { name, create } of dependants) await attempt(tx, name, create);
}

async function attempt(tx: Queryable, name: string, text: string): Promise<void> {
  try {
    await tx.query(text);
  } catch (error) {
    throw new PgfreshError('PGF_UPGRADE_DEPENDANT', { name, problem: problemOf(error) }, { cause: error });
  }
}

/** What to run by hand before and after the upgrade; nothing if there are no such views. */
export function dependantsScript(dependants: readonly Dependant[]): string {
  if (dependants.length === 0) return '';
  return [
    '-- These views need what the upgrade drops or replaces. Drop them first:',
    ...dependants.toReversed().map(({ drop }) => `${drop};`),
    '-- Run "pgfresh migrate". Then create them again:',
    ...dependants.map(({ create }) => `${create};`),
  ].join('\n');
}
