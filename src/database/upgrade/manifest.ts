import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Queryable } from '../query.ts';
import { catalogueQuery, readCatalogue, type CatalogueObject } from './catalogue.ts';

/** The objects that the SQL files create in an empty database. */
export type Manifest = readonly CatalogueObject[];

export interface Manifests {
  /** The manifest of these files; if undefined, nothing is dropped. */
  readonly current: Manifest | undefined;
  /** The manifest of 0.1.0, which did not record its objects. */
  readonly unrecorded: Manifest;
}

/** Reads `manifest.json` and `manifest-0.1.0.json` of the folder with the SQL files. */
export async function readManifests(folder: string): Promise<Manifests> {
  const [current, unrecorded] = await Promise.all(
    ['manifest.json', 'manifest-0.1.0.json'].map((name) => readManifest(join(folder, name))),
  );
  return { current, unrecorded: unrecorded ?? [] };
}

async function readManifest(path: string): Promise<Manifest | undefined> {
  try {
    return JSON.parse(await readFile(path, 'utf8')) as Manifest;
  } catch (error) {
    if ((error as { code?: string }).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** The text of `manifest.json`, from a database with only pgfresh installed. One line per object. */
export async function manifestText(database: Queryable): Promise<string> {
  const objects = await readCatalogue(database);
  return `[\n${objects.map((object) => `  ${JSON.stringify(object)}`).join(',\n')}\n]\n`;
}

/** The tables that record which objects are pgfresh's. */
export const manifestTables = `create table if not exists pgfresh_engine.manifest (
  kind text not null,
  identity text not null,
  -- Where it is while a migration moves and renames it. Another one after a restore.
  classid oid not null,
  objid oid not null,
  -- False while a migration runs for what others made in the schema; else such objects are not listed.
  ours boolean not null,
  primary key (kind, identity)
);
comment on table pgfresh_engine.manifest is 'The objects that pgfresh has made, so that an upgrade drops those and no others.';
create table if not exists pgfresh_engine.installation (
  id int primary key,
  version text not null,
  functions text not null,
  -- Whether functions, views or tables have gone or are others since the one before, so that its processes must end.
  breaks boolean not null,
  installed_at timestamptz not null default clock_timestamp(),
  -- What the processes of this version use, and the oldest that works with its functions.
  protocol int not null default 1,
  min_protocol int not null default 1,
  -- Until then an upgrade waits for all processes to stop.
  drain_until timestamptz
);
comment on table pgfresh_engine.installation is
  'Each version whose functions were installed here, with a hash of them, so that an older one does not come back.';`;

/**
 * Before the first file: records which existing objects are ours, by oid,
 * so a numbered file may move or rename them.
 */
export function noteOwners({ unrecorded }: Manifests): string {
  return `with catalogue as materialized (${catalogueQuery}
), known as materialized (
  select kind, identity from pgfresh_engine.manifest
  union all
  select kind, identity from ${recordset(unrecorded)}
  where not exists (select from pgfresh_engine.manifest) and exists (select from pgfresh.migrations)
), found as materialized (
  select c.kind, c.identity, c.classid, c.objid,
    exists (select from known as k where k.kind = c.kind and k.identity = c.identity)
      or c.identity in ('pgfresh.migrations', 'pgfresh_engine.manifest', 'pgfresh_engine.installation') as ours
  from catalogue as c
), gone as (
  delete from pgfresh_engine.manifest as m
  where not exists (select from found as f where f.kind = m.kind and f.identity = m.identity)
)
insert into pgfresh_engine.manifest (kind, identity, classid, objid, ours)
select kind, identity, classid, objid, ours from found
on conflict (kind, identity) do update set classid = excluded.classid, objid = excluded.objid, ours = excluded.ours;`;
}

/** After the last file, before the record of our objects is renewed. */
export const recordBuild = `insert into pgfresh_engine.installation (id, version, functions, breaks, protocol, min_protocol)
select coalesce(max(id), 0) + 1, $1::text, $2::text, exists (
  select kind, identity, objid from pgfresh_engine.manifest where ours and kind in ('function', 'view', 'table')
  except
  select kind, identity, objid from (${catalogueQuery}) as object), $3::int, $4::int
from pgfresh_engine.installation`;

/** After the last file: ours are our old objects that still exist, and all created since. */
export const recordOwners = `with found as materialized (
  select c.kind, c.identity, c.classid, c.objid
  from (${catalogueQuery}) as c
  where not exists (
    select from pgfresh_engine.manifest as m where m.classid = c.classid and m.objid = c.objid and not m.ours)
), gone as (
  delete from pgfresh_engine.manifest as m
  where not exists (select from found as f where f.kind = m.kind and f.identity = m.identity)
)
insert into pgfresh_engine.manifest (kind, identity, classid, objid, ours)
select kind, identity, classid, objid, true from found
on conflict (kind, identity) do update set classid = excluded.classid, objid = excluded.objid, ours = true;`;

/** A manifest's objects as a relation. */
export function recordset(manifest: Manifest): string {
  const text = JSON.stringify(manifest).replaceAll("'", "''");
  return `jsonb_to_recordset('${text}'::jsonb) as listed(kind text, identity text, shape text, defaults int)`;
}
