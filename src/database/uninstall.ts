import { PgfreshError } from '../errors/index.ts';
import type { Database } from './database.ts';
import { readSqlFiles } from './migration-files.ts';
import { transactLocked } from './migration-lock.ts';
import type { Queryable } from './query.ts';
import { previewRoleRemoval, removeRoles, type RoleRemoval } from './role-removal.ts';
import { readOthers } from './upgrade/index.ts';

/** What uninstalling removes: pgfresh's objects by kind, and dependent objects by name. */
export interface UninstallPreview {
  readonly installed: boolean;
  readonly objects: readonly { kind: string; count: number }[];
  /** Users' triggers, views and the like that are in the schemas or depend on them. */
  readonly dependents: readonly string[];
  /** Users' tables and columns that would be dropped too. If there are any, nothing is dropped. */
  readonly blockers: readonly string[];
  readonly roles: RoleRemoval;
}

const noRoles: RoleRemoval = { rights: [], dropped: [], kept: [] };

const insideObjects = `with ours as (
  select oid from pg_namespace where nspname in ('pgfresh', 'pgfresh_engine')
)
select kind, count(*)::int as count from (
  select case relkind when 'S' then 'sequence' when 'v' then 'view' when 'm' then 'view' else 'table' end as kind
  from pg_class join ours on relnamespace = ours.oid where relkind in ('r', 'p', 'v', 'm', 'S')
  union all
  select 'function' from pg_proc join ours on pronamespace = ours.oid
) as object group by kind order by kind`;

/**
 * Follows dependencies as DROP … CASCADE does: to dependants, and from a part that cannot be dropped alone (the
 * rule of a view, a member of an extension) to the whole.
 */
const outsideObjects = `with recursive goes (classid, objid, objsubid) as (
  select 'pg_namespace'::regclass::oid, oid, 0 from pg_namespace where nspname in ('pgfresh', 'pgfresh_engine')
  union
  select next.* from goes cross join lateral (
    select classid, objid, objsubid from pg_depend
    where refclassid = goes.classid and refobjid = goes.objid and goes.objsubid in (0, refobjsubid)
    union all
    select refclassid, refobjid, refobjsubid from pg_depend
    where classid = goes.classid and objid = goes.objid and objsubid = goes.objsubid and deptype in ('i', 'e')
  ) as next
), outside as (
  select goes.* from goes, pg_identify_object(classid, objid, objsubid) as identity
  where classid <> 'pg_namespace'::regclass
    and coalesce(identity.schema, '') not in ('pgfresh', 'pgfresh_engine', 'pg_toast')
    -- Named with its whole, or a part of something of ours that has no schema of its own, such as a trigger.
    and not exists (
      select from pg_depend as part join goes as whole on whole.classid = refclassid and whole.objid = refobjid
      where part.classid = goes.classid and part.objid = goes.objid and goes.objsubid = 0
        and whole.objsubid in (0, refobjsubid)
        and (deptype = 'i' or identity.schema is null and deptype = 'a' and (
          refclassid = 'pg_namespace'::regclass
          or (pg_identify_object(refclassid, refobjid, 0)).schema in ('pgfresh', 'pgfresh_engine'))))
    and not exists (
      select from goes as whole
      where whole.classid = goes.classid and whole.objid = goes.objid and goes.objsubid > 0 and whole.objsubid = 0)
)
select pg_describe_object(classid, objid, objsubid) as name, coalesce(relkind in ('r', 'p', 'f'), false) as blocks
from outside left join pg_class on classid = 'pg_class'::regclass and oid = objid
order by name`;

/** What `uninstall` would drop now. */
export function previewUninstall(database: Database): Promise<UninstallPreview> {
  return transactLocked(database, 'uninstall preview', preview);
}

/** Drops the schemas, what depends on them and the roles, unless users' data depends on them. Returns what it dropped. */
export function uninstall(database: Database): Promise<UninstallPreview> {
  return transactLocked(database, 'uninstall', async (tx) => {
    const found = await preview(tx);
    if (found.blockers.length > 0) {
      throw new PgfreshError('PGF_UNINSTALL_BLOCKED', { names: found.blockers.join(', ') });
    }
    if (!found.installed) return found;
    await tx.query('drop schema if exists pgfresh, pgfresh_engine cascade');
    return { ...found, roles: await removeRoles(tx) };
  });
}

async function preview(tx: Queryable): Promise<UninstallPreview> {
  const [schema] = await tx.query<{ installed: boolean }>(`select to_regnamespace('pgfresh') is not null as installed`);
  if (!schema?.installed) return { installed: false, objects: [], dependents: [], blockers: [], roles: noRoles };
  const objects = await tx.query<{ kind: string; count: number }>(insideObjects);
  const outside = await tx.query<{ name: string; blocks: boolean }>(outsideObjects);
  const inside = await readOthers(tx, (await readSqlFiles()).manifests);
  const found = [...outside, ...inside.map(({ name, isTable }) => ({ name, blocks: isTable }))];
  const names = (blocks: boolean): string[] =>
    found
      .filter((row) => row.blocks === blocks)
      .map((row) => row.name)
      .toSorted();
  const roles = await previewRoleRemoval(tx);
  return { installed: true, objects, dependents: names(false), blockers: names(true), roles };
}
