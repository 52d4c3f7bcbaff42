import pg from 'pg';
import type { DataType } from '../config/index.ts';
import type { Queryable } from '../database/index.ts';
import { problemOf } from '../errors/index.ts';
import {
  didYouMean,
  mirroredColumns,
  missingGrants,
  readTableRights,
  rowColumns,
  type TableColumn,
  type TableRight,
} from '../registry/index.ts';
import type { Fetcher, RefreshType } from './refresh-type.ts';
import { WriteStatements } from './write-statement.ts';

interface RegisteredType extends Pick<
  RefreshType,
  | 'id'
  | 'name'
  | 'definition'
  | 'source'
  | 'sourceId'
  | 'keyColumns'
  | 'normalise'
  | 'timestamp'
  | 'sourceTimestamp'
  | 'ttl'
  | 'maxDeletes'
  | 'evicts'
> {
  /** Null: decided by how the fetcher writes rows. */
  readonly emptyRows: RefreshType['emptyRows'] | null;
  readonly fetcher: string;
  /** As named in the registry. */
  readonly table: string;
  /** Quoted and schema-qualified; null if the table does not exist. */
  readonly quoted: string | null;
  /** The columns of its unique constraints, primary key first. */
  readonly targets: readonly (readonly string[])[];
}

/** Why this process does not refresh a data type, and what to do. */
interface CatalogProblem {
  readonly type: string;
  readonly problem: string;
  readonly next: string;
  readonly code: 'PGF_FETCHER_MISSING' | 'PGF_DATABASE_RIGHTS';
}

export interface CatalogOptions {
  /** Limits it to these types. */
  readonly only?: readonly string[] | undefined;
  /** Whether the login must be able to write the tables. */
  readonly writes?: boolean;
}

/** The data types that this process can refresh, and the problems of the others. */
export interface Catalog {
  readonly types: ReadonlyMap<number, RefreshType>;
  readonly problems: readonly CatalogProblem[];
  /** The fetchers of this configuration, and the data types whose fetcher is not among them. */
  readonly fetchers: readonly string[];
  readonly foreign: readonly { readonly type: string; readonly fetcher: string }[];
  /** The database's time when it was read. */
  readonly now: Date;
}

// Only constraints that cover every row: no expression, no condition, not deferrable.
const registered = `
  select r.type_id as id, r.data_type as name, r.definition, r.fetcher, r.source, r.source_id as "sourceId", r.table_name as "table", r.key_columns as "keyColumns",
    r.normalise, r.timestamp_column as "timestamp", r.source_timestamp_field as "sourceTimestamp", extract(epoch from r.ttl)::float8 * 1000 as ttl,
    r.empty_rows as "emptyRows", r.max_deletes::float8 as "maxDeletes", r.evict_after is not null as evicts, case when c.oid is not null then format('%I.%I', n.nspname, c.relname) end as quoted,
    coalesce((select json_agg(u.columns order by u.is_primary desc, cardinality(u.columns), u.columns) from (
      select i.indisprimary as is_primary, array_agg(a.attname::text order by k.place) as columns
      from pg_index as i cross join unnest(i.indkey) with ordinality as k(attnum, place) join pg_attribute as a on a.attrelid = c.oid and a.attnum = k.attnum
      where i.indrelid = c.oid and i.indisunique and i.indimmediate and i.indisvalid and i.indpred is null and i.indexprs is null and k.place <= i.indnkeyatts
      group by i.indexrelid, i.indisprimary
    ) as u), '[]') as targets
  from pgfresh.data_type_registry as r
  cross join lateral (select case when position('.' in r.table_name) = 0 then array['public', r.table_name] else string_to_array(r.table_name, '.') end as parts) as p
  left join pg_namespace as n on n.nspname = p.parts[1]
  left join pg_class as c on c.relnamespace = n.oid and c.relname = p.parts[2] and c.relkind in ('r', 'p', 'f')
  order by r.data_type`;

/** The part of a configuration that the catalog needs. */
export interface Fetchers {
  readonly sources: readonly { readonly name: string }[];
  readonly dataTypes: readonly DataType[];
}

/**
 * Joins the registry, the tables and the fetchers of the configuration. A data type added by SQL works as soon as it
 * names a fetcher of this configuration.
 */
export async function readCatalog(
  db: Queryable,
  { sources, dataTypes }: Fetchers,
  { only, writes = true }: CatalogOptions = {},
): Promise<Catalog> {
  const [clock] = await db.query<{ now: Date }>('select pgfresh.clock() as now');
  const rows = (await db.query<RegisteredType>(registered)).filter(({ name }) => !only || only.includes(name));
  const fetchers = new Map(dataTypes.flatMap((type) => (isFetched(type) ? [[type.fetcher ?? type.name, type]] : [])));
  const tables = rows.map(({ table }) => table);
  const columns = await mirroredColumns(db, tables);
  const rights = await readTableRights(db, tables);
  const types = new Map<number, RefreshType>();
  const problems: CatalogProblem[] = [];
  const foreign: Catalog['foreign'][number][] = [];
  for (const row of rows) {
    const fetcher = fetchers.get(row.fetcher);
    // Another process may have this fetcher.
    if (!fetcher) {
      foreign.push({ type: row.name, fetcher: row.fetcher });
      continue;
    }
    const type = sources.some(({ name }) => name === row.source)
      ? refreshTypeOrProblem(row, fetcher, columns.get(row.table) ?? [])
      : {
          problem: `its source ${row.source} is not in the configuration`,
          next: 'Add the source to the configuration.',
        };
    if ('problem' in type) {
      problems.push({ type: row.name, code: 'PGF_FETCHER_MISSING', ...type });
      continue;
    }
    // Checked before fetching: an answer that cannot be written is paid for all the same.
    const held = rights.get(row.table);
    const grants = held && writes ? missingGrants(held, neededRights(type)) : [];
    if (held && grants.length > 0) problems.push({ type: row.name, ...unwritable(held, grants) });
    else types.set(row.id, type);
  }
  return { types, problems, fetchers: [...fetchers.keys()], foreign, now: clock!.now };
}

/** The rights that a worker's login needs on the table of a data type. */
export function neededRights({ fetcher, emptyRows, evicts }: RefreshType): TableRight[] {
  const deletes = fetcher.write.mode === 'replace' || emptyRows === 'delete' || evicts;
  return deletes ? ['select', 'insert', 'update', 'delete'] : ['select', 'insert', 'update'];
}

function unwritable(
  { user, table }: { readonly user: string; readonly table: string },
  grants: readonly string[],
): Omit<CatalogProblem, 'type'> {
  return {
    problem: `the login ${user} may not write ${table}`,
    next: `Run: ${grants.join(' ')}`,
    code: 'PGF_DATABASE_RIGHTS',
  };
}

function isFetched(type: DataType): type is DataType & Fetcher {
  return type.request !== undefined && type.schema !== undefined && type.rows !== undefined;
}

/** A faulty data type must not affect the others. */
function refreshTypeOrProblem(...of: Parameters<typeof refreshType>): ReturnType<typeof refreshType> {
  try {
    return refreshType(...of);
  } catch (error) {
    return { problem: problemOf(error), next: 'Correct the data type, or its table.' };
  }
}

function refreshType(
  row: RegisteredType,
  fetcher: Fetcher & Pick<DataType, 'key'>,
  columns: readonly TableColumn[],
): RefreshType | { problem: string; next: string } {
  const { table: name, quoted, targets, keyColumns, timestamp, sourceTimestamp } = row;
  if (quoted === null) return { problem: `there is no table ${name}`, next: 'Create it, or correct the data type.' };
  const target = targets.find((one) => keyColumns.every((key) => one.includes(key)) && !one.includes(timestamp));
  if (!target) {
    const unique = uniqueColumns(row, fetcher, columns).map((column) => pg.escapeIdentifier(column));
    return {
      problem: `${quoted} has no unique constraint with ${keyColumns.join(', ')}, by which rows are recognised`,
      next: `Run: alter table ${quoted} add unique (${unique.join(', ')});`,
    };
  }
  const known = new Map(columns.map((column) => [column.name, column]));
  const present = [...known.keys()];
  // The registry's column decides; a column of a configuration that is not synced yet is reported too.
  const problem =
    unknownColumn(fetcher, quoted, present) ??
    unknownColumn({ ...fetcher, sourceTimestamp: sourceTimestamp ?? undefined }, quoted, present);
  if (problem !== undefined) return { problem, next: 'Add the column, or correct the data type.' };
  const table = { name: quoted, columns: known, target };
  const emptyRows = row.emptyRows ?? (fetcher.write.mode === 'replace' ? 'delete' : 'keep');
  const statements = new WriteStatements({ table, keyColumns, timestamp, sourceTimestamp, emptyRows, fetcher });
  const { id, definition, source, sourceId, normalise, ttl, maxDeletes, evicts } = row;
  const said = { id, name: row.name, definition, source, sourceId, keyColumns, normalise };
  return { ...said, timestamp, sourceTimestamp, ttl, emptyRows, maxDeletes, evicts, fetcher, table, statements };
}

/** The columns that identify a row: those of the key, and for keys with many rows those that tell the rows apart. */
function uniqueColumns(
  { keyColumns, targets, timestamp }: RegisteredType,
  { write }: Fetcher,
  columns: readonly TableColumn[],
): readonly string[] {
  const [first = []] = targets.filter((one) => !one.includes(timestamp));
  // The answer does not contain columns that PostgreSQL fills in itself.
  const isGiven = first.every((name) => columns.some((column) => column.name === name && !column.filled));
  const others = first.filter((name) => !keyColumns.includes(name));
  return write.mode === 'replace' || isGiven ? [...keyColumns, ...others] : keyColumns;
}

/** A column named by an option of the data type that no row can have, so that its bounds would never apply. */
function unknownColumn(
  { key, sourceTimestamp, write, sanity, row }: Fetcher & Pick<DataType, 'key'>,
  table: string,
  columns: readonly string[],
): string | undefined {
  const named = [
    ...(sourceTimestamp === undefined ? [] : [['sourceTimestamp', sourceTimestamp] as const]),
    ...(write.ifGreater === undefined ? [] : [['write', write.ifGreater] as const]),
    ...(typeof sanity === 'object' ? Object.keys(sanity).map((column) => ['sanity', column] as const) : []),
  ];
  const absent = named.find(([, column]) => !columns.includes(column));
  if (absent) {
    const [option, column] = absent;
    return `${option}: ${table} has no column ${column}${didYouMean(column, columns)}`;
  }
  const fields = row && rowColumns(row);
  if (!fields) return undefined;
  const unfilled = [...key.map((column) => ['key', column] as const), ...named].find(
    ([, one]) => !fields.includes(one),
  );
  if (!unfilled) return undefined;
  const [option, column] = unfilled;
  return `${option}: the schema row has no column ${column}${didYouMean(column, fields)}`;
}
