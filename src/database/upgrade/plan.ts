import { PgfreshError } from '../../errors/index.ts';
import type { Queryable } from '../query.ts';
import { lacksReading } from '../rights.ts';
import { schemas } from '../schema-owner.ts';
import { catalogueQuery } from './catalogue.ts';
import { readDependants, type Dependant } from './dependants.ts';
import { recordset, type Manifest, type Manifests } from './manifest.ts';

/** What an upgrade does to objects, by kind and name. Functions that keep their shape are not listed. */
export interface ObjectChanges {
  /** No longer part of pgfresh. */
  readonly dropped: readonly string[];
  /** Dropped and recreated: `create or replace` cannot change them, or they depend on such an object. */
  readonly replaced: readonly string[];
  readonly created: readonly string[];
  /** Created by users in the schemas, and left alone. */
  readonly yours: readonly string[];
}

export const noChanges: ObjectChanges = { dropped: [], replaced: [], created: [], yours: [] };

type Step = 'drop' | 'replace' | 'create' | 'yours' | 'blocked' | 'taken';

/** Ownership of objects: queries for the classid and objid of ours, and of users'. */
interface Owners {
  readonly ours: string;
  readonly others: string;
}

const recorded: Owners = {
  ours: 'select classid, objid from pgfresh_engine.manifest where ours',
  others: 'select classid, objid from pgfresh_engine.manifest where not ours',
};

/** Before a migration has recorded it. `listed` is what the database has recorded, or the manifest of 0.1.0. */
function ownersBy(listed: Manifest): Owners {
  const isOurs = `exists (select from ${recordset(listed)} where listed.kind = c.kind and listed.identity = c.identity)`;
  return {
    ours: `select classid, objid from catalogue as c where ${isOurs}`,
    others: `select classid, objid from catalogue as c where not ${isOurs}`,
  };
}

/** An object that a numbered file drops, as the file says at its top: "-- drops: view job_status, table nodes". */
export interface NumberedDrop {
  readonly kind: string;
  /** Without its schema, which an earlier file may have changed. */
  readonly name: string;
}

/** What pending numbered files do to objects: which they drop. They may move others. */
export function numberedDrops(files: readonly { readonly text: string }[]): NumberedDrop[] {
  return files.flatMap(({ text }) =>
    [...text.matchAll(/^-- drops: (.+)$/gm)].flatMap(([, list]) =>
      list!.split(', ').map((entry) => {
        const [kind = '', name = ''] = entry.split(' ');
        return { kind, name };
      }),
    ),
  );
}

/** The name with both schemas treated as one, to recognise objects that a numbered file moves. */
const unmoved = (column: string): string => `replace(${column}, 'pgfresh_engine.', 'pgfresh.')`;

/**
 * Follows dependencies as DROP … CASCADE does (see `uninstall.ts`), from objects that left the files or changed shape.
 * Dependants are dropped too if they are ours and the files recreate them. All others are in the way.
 * Before numbered files are applied, `drops` is what they drop, and what they may move to the other schema stays.
 */
const planQuery = (
  wanted: Manifest,
  { ours, others }: Owners,
  drops?: readonly NumberedDrop[],
): string => `with recursive catalogue as materialized (
  ${catalogueQuery}
), wanted as materialized (
  select *, ${drops ? unmoved('identity') : 'identity'} as place, ${drops ? unmoved('shape') : 'shape'} as form
  from ${recordset(wanted)}
), numbered as (
  select kind, name from jsonb_to_recordset('${JSON.stringify(drops ?? [])}'::jsonb) as d(kind text, name text)
), ours as materialized (
  select c.* from catalogue as c join (${ours}) as o using (classid, objid)
), others as materialized (
  select c.* from catalogue as c join (${others}) as o using (classid, objid)
), made as materialized (
  select * from ours where kind in ('function', 'view', 'type', 'trigger')
), goes (classid, objid, objsubid, because, numbered) as (
  (select o.classid, o.objid, 0, format('%s %s', o.kind, o.identity), false
  from (
    select *, ${drops ? unmoved('identity') : 'identity'} as place, ${drops ? unmoved('shape') : 'shape'} as form
    from made
  ) as o
  left join wanted as w using (kind, place)
  where w.kind is null or o.defaults > w.defaults
    -- A view can get more columns at its end.
    or not case o.kind when 'view' then starts_with(w.form || ',', o.form || ',') else w.form = o.form end
  union
  select o.classid, o.objid, 0, format('%s %s', o.kind, o.identity), true
  from numbered as d
  join ours as o on o.kind = d.kind and ${unmoved('o.identity')} = 'pgfresh.' || quote_ident(d.name))
  union
  select next.*, because, numbered from goes cross join lateral (
    select classid, objid, objsubid from pg_depend
    where refclassid = goes.classid and refobjid = goes.objid and goes.objsubid in (0, refobjsubid)
    union all
    select refclassid, refobjid, refobjsubid from pg_depend
    where classid = goes.classid and objid = goes.objid and objsubid = goes.objsubid and deptype in ('i', 'e')
  ) as next
  -- A numbered file that drops an object has seen to those of ours that need it.
  where not (numbered and exists (select from ours as o where o.classid = next.classid and o.objid = next.objid))
), drops as (
  select o.kind, o.identity from goes join made as o using (classid, objid)
  union
  -- What is moved is no longer where it was.
  select o.kind, o.identity from made as o left join wanted as w using (kind, identity) where w.kind is null
)
select case when w.kind is null then 'drop' else 'replace' end as step, d.kind, d.identity as name,
  null::oid as relation
from drops as d left join wanted as w using (kind, identity)
union all
select 'create', kind, identity, null from wanted
where not exists (select from catalogue as c where c.kind = wanted.kind and c.identity = wanted.identity)
union all
select case when w.kind is null then 'yours' else 'taken' end, o.kind, o.identity, null
from others as o left join wanted as w using (kind, identity)
union all
select 'blocked', min(object.type), format('%s (needs %s)', min(object.identity), string_agg(distinct because, ', ')),
  case g.classid when 'pg_class'::regclass then g.objid end
from goes as g cross join pg_identify_object(g.classid, g.objid, g.objsubid) as object
where not exists (select from ours as o where o.classid = g.classid and o.objid = g.objid)
  and not (g.numbered and exists (
    select from pg_depend as part
    join ours as o on o.classid = part.refclassid and o.objid = part.refobjid
    where part.classid = g.classid and part.objid = g.objid and part.deptype in ('i', 'a')))
  -- A part goes with its whole.
  and not exists (
    select from pg_depend as part
    join goes as whole on whole.classid = part.refclassid and whole.objid = part.refobjid
      and whole.objsubid in (0, part.refobjsubid)
    where part.classid = g.classid and part.objid = g.objid and part.objsubid in (0, g.objsubid)
      and part.deptype in ('i', 'a', 'P', 'S'))
  and not exists (
    select from goes as whole
    where whole.classid = g.classid and whole.objid = g.objid and g.objsubid > 0 and whole.objsubid = 0)
group by g.classid, g.objid, g.objsubid
order by 1, 2, 3`;

/** The plan after the numbered files, or before them, given what they drop. */
export function readPlan(
  tx: Queryable,
  { current }: Manifests,
  drops?: readonly NumberedDrop[],
): Promise<ObjectChanges> {
  return readChanges(tx, current, recorded, drops);
}

/** Users' views in its way, which can be dropped and recreated. */
export async function readDependantViews(
  tx: Queryable,
  { current }: Manifests,
  drops?: readonly NumberedDrop[],
): Promise<Dependant[]> {
  return current ? readDependants(tx, blockedViews(current, recorded, drops)) : [];
}

/** The same before a migration has recorded ownership. */
export async function previewDependantViews(
  db: Queryable,
  manifests: Manifests,
  drops: readonly NumberedDrop[],
): Promise<Dependant[]> {
  const { current } = manifests;
  return current ? readDependants(db, blockedViews(current, await readOwners(db, manifests), drops)) : [];
}

function blockedViews(wanted: Manifest, owners: Owners, drops: readonly NumberedDrop[] | undefined): string {
  return `select relation from (${planQuery(wanted, owners, drops)}) as plan where step = 'blocked'`;
}

/** The plan as far as it is known before the numbered files are applied. */
export async function previewPlan(
  db: Queryable,
  manifests: Manifests,
  drops: readonly NumberedDrop[],
  recreates = false,
): Promise<ObjectChanges> {
  const recreated = recreates ? await previewDependantViews(db, manifests, drops) : [];
  return readChanges(db, manifests.current, await readOwners(db, manifests), drops, recreated);
}

async function readOwners(db: Queryable, { unrecorded }: Manifests): Promise<Owners> {
  const [table] = await db.query<{ user: string; readable: boolean }>(
    `select current_user as "user",
       has_schema_privilege(s.oid, 'usage') and has_table_privilege(c.oid, 'select') as readable
     from pg_class as c join pg_namespace as s on s.oid = c.relnamespace
     where s.nspname = 'pgfresh_engine' and c.relname = 'manifest'`,
  );
  if (table?.readable === false) throw lacksReading(table.user);
  const listed = table
    ? await db.query<Manifest[number]>('select kind, identity from pgfresh_engine.manifest')
    : unrecorded;
  return ownersBy(listed);
}

/** Objects that users created in the schemas. */
export async function readOthers(
  db: Queryable,
  manifests: Manifests,
): Promise<{ readonly name: string; readonly isTable: boolean }[]> {
  const { others } = await readOwners(db, manifests);
  const names = schemas.map((name) => `'${name}'`).join(', ');
  return db.query(`with catalogue as materialized (
  ${catalogueQuery}
)
select pg_describe_object(c.classid, c.objid, 0) as name, c.kind = 'table' as "isTable"
from catalogue as c join (${others}) as o using (classid, objid)
union all
-- The catalogue leaves partitions out, also those of tables in other schemas.
select pg_describe_object('pg_class'::regclass, part.oid, 0), true
from pg_class as part join pg_class as root on root.oid = pg_partition_root(part.oid)
where part.relispartition and part.relkind in ('r', 'p', 'f')
  and part.relnamespace::regnamespace::text in (${names}) and root.relnamespace::regnamespace::text not in (${names})`);
}

async function readChanges(
  db: Queryable,
  wanted: Manifest | undefined,
  owners: Owners,
  drops?: readonly NumberedDrop[],
  recreated: readonly Dependant[] = [],
): Promise<ObjectChanges> {
  if (!wanted) return noChanges;
  const found = await db.query<{ step: Step; kind: string; name: string; relation: number | null }>(
    planQuery(wanted, owners, drops),
  );
  const rows = found.filter(({ relation }) => !recreated.some((view) => view.relation === relation));
  const named = (step: Step): string[] =>
    rows.filter((row) => row.step === step).map(({ kind, name }) => `${kind} ${name}`);
  const [taken, blocked] = [named('taken'), named('blocked')];
  if (taken.length > 0) throw new PgfreshError('PGF_UPGRADE_NAME_TAKEN', { names: taken.join(', ') });
  if (blocked.length > 0) throw new PgfreshError('PGF_UPGRADE_BLOCKED', { names: blocked.join(', ') });
  return { dropped: named('drop'), replaced: named('replace'), created: named('create'), yours: named('yours') };
}

/**
 * Drops what `readPlan` says, one by one and never with CASCADE: objects with dependants wait for the next round.
 * A script fails with the same errors here.
 */
export function dropObjects({ current }: Manifests): string {
  if (!current) return 'select';
  return `do $upgrade$
declare
  v_refused text;
  v_drops text[];
  v_left text[];
  v_drop text;
begin
  select string_agg(format('%s %s', kind, name), ', ') filter (where step in ('taken', 'blocked')),
    array_agg(format('drop %s if exists %s', case kind when 'function' then 'routine' else kind end, name))
      filter (where step in ('drop', 'replace'))
  into v_refused, v_drops
  from (${planQuery(current, recorded)}) as plan;
  if v_refused is not null then
    raise exception 'PGF_UPGRADE_BLOCKED: these are in the way of the upgrade: %', v_refused;
  end if;
  while v_drops <> '{}' loop
    v_left := '{}';
    foreach v_drop in array v_drops loop
      begin
        execute v_drop;
      exception when dependent_objects_still_exist then
        v_left := v_left || v_drop;
      end;
    end loop;
    if v_left = v_drops then
      raise exception 'PGF_UPGRADE_BLOCKED: something still depends on these: %', array_to_string(v_left, '; ');
    end if;
    v_drops := v_left;
  end loop;
end
$upgrade$`;
}

const lackingQuery = (wanted: Manifest): string => `select string_agg(format('%s %s', kind, identity), ', ') as names
from (
  select kind, identity, shape from ${recordset(wanted)}
  except
  select kind, identity, shape from (${catalogueQuery}) as object
) as lacking`;

/** After the last file: throws if an expected object is missing or has another shape. */
export async function requireObjects(tx: Queryable, { current }: Manifests): Promise<void> {
  const [lacking] = await tx.query<{ names: string | null }>(lackingQuery(current ?? []));
  if (lacking?.names) throw new PgfreshError('PGF_UPGRADE_INCOMPLETE', { names: lacking.names });
}

/** The same for a script. */
export function objectGuard({ current }: Manifests): string {
  return `do $guard$
declare
  lacking text := (${lackingQuery(current ?? [])});
begin
  if lacking is not null then
    raise exception 'PGF_UPGRADE_INCOMPLETE: not as this version expects it: %', lacking;
  end if;
end
$guard$;`;
}
