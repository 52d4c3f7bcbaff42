import { createHash } from 'node:crypto';
import pg from 'pg';
import type { Statement } from '../database/index.ts';
import type { TableColumn } from '../registry/index.ts';
import type { Fetcher, MirrorTable } from './refresh-type.ts';

/** What the statements are built from. */
interface WritePlan {
  readonly table: MirrorTable;
  readonly keyColumns: readonly string[];
  readonly timestamp: string;
  readonly sourceTimestamp: string | null;
  readonly emptyRows: 'keep' | 'delete';
  readonly fetcher: Pick<Fetcher, 'write' | 'nulls'>;
}

export interface WriteStatement {
  /** ($1 rows as JSON with ~job and ~age; $2 database time; `more`) → job, written, other, had, rowAt, sourceAt */
  readonly upsert: Statement;
  /** Additional parameters of `upsert`. */
  readonly more: readonly unknown[];
  /** ($1 rows as JSON, $2 jobs whose rows were written): deletes rows they lack. Only where rows are replaced. */
  readonly prune: Statement | undefined;
}

/** The columns that a statement writes. */
interface WrittenColumns {
  readonly all: readonly string[];
  /** Columns that only some answers have. Parameter $3 lists those of the current rows. */
  readonly optional: ReadonlySet<string>;
}

/**
 * The columns seen in answers of a fetcher so far: in any answer, and in all. Kept across catalog reads, so that the
 * statements stay the same.
 */
const seen = new WeakMap<object, { readonly any: Set<string>; readonly always: Set<string> }>();

/**
 * The statements of a data type. Optional columns are a parameter: with one statement per set of columns, a type with
 * ten of them would prepare a thousand on every connection.
 */
export class WriteStatements {
  readonly #plan: WritePlan;
  readonly #known = new Map<string, Pick<WriteStatement, 'upsert' | 'prune'>>();
  /** ($1 keys): makes other writers of these keys wait. Only where rows are replaced. */
  readonly lock: Statement | undefined;
  /** ($1 keys as JSON by column, with ~job and ~age; $2 database time) → job, had, lost, rowAt. Only if rows go. */
  readonly remove: Statement | undefined;
  /** ($1 keys as JSON by column): deletes all rows of these keys. */
  readonly evict: Statement;

  constructor(plan: WritePlan) {
    this.#plan = plan;
    this.lock = plan.fetcher.write.mode === 'replace' ? named(locking(plan.table)) : undefined;
    this.remove = plan.emptyRows === 'delete' ? named(removing(plan)) : undefined;
    this.evict = named(evicting(plan));
  }

  /** Records the columns of answers, before statements are built. */
  learn(sets: readonly (readonly string[])[]): void {
    const known = seen.get(this.#plan.fetcher) ?? { any: new Set(sets.flat()), always: new Set(sets[0]) };
    seen.set(this.#plan.fetcher, known);
    for (const set of sets) {
      for (const column of set) known.any.add(column);
      for (const column of known.always) if (!set.includes(column)) known.always.delete(column);
    }
  }

  /** The statement for rows that have these columns. */
  for(columns: readonly string[]): WriteStatement {
    const { any, always } = seen.get(this.#plan.fetcher)!;
    const { columns: known } = this.#plan.table;
    // An identity column cannot be given its default as an expression, so it is left out.
    const all = [...any].filter((name) => columns.includes(name) || known.get(name)?.identity === false).toSorted();
    const optional = new Set(all.filter((name) => !always.has(name) && !known.get(name)!.identity));
    const name = JSON.stringify([all, [...optional]]);
    const statement = this.#known.get(name) ?? writeStatement(this.#plan, { all, optional });
    this.#known.set(name, statement);
    const given = columns.filter((column) => optional.has(column));
    return { ...statement, more: optional.size > 0 ? [given] : [] };
  }
}

const id = (name: string): string => pg.escapeIdentifier(name);
const list = (names: readonly string[], alias = ''): string => names.map((name) => `${alias}${id(name)}`).join(', ');
const alike = (names: readonly string[], a: string, b: string): string =>
  names.map((name) => `${a}.${id(name)} = ${b}.${id(name)}`).join(' and ');

function writeStatement(plan: WritePlan, written: WrittenColumns): Pick<WriteStatement, 'upsert' | 'prune'> {
  const { table, fetcher, keyColumns, sourceTimestamp } = plan;
  const given = givenRows(table.columns, written.all);
  if (fetcher.write.mode !== 'replace')
    return { upsert: named(`with ${given}, ${merging(plan, written)}`), prune: undefined };
  const identity = new Set([...keyColumns, ...table.target, ...(sourceTimestamp === null ? [] : [sourceTimestamp])]);
  return {
    upsert: named(`with ${given}, ${replacing(plan, written)}`),
    prune: named(`with ${givenRows(table.columns, [...identity])} ${pruning(plan)}`),
  };
}

/** Whether the rows have an optional column. */
const has = (name: string): string => `${pg.escapeLiteral(name)} = any ($3::text[])`;

/** The insert's values: columns that the rows lack get their default. */
function inserted({ table }: Pick<WritePlan, 'table'>, { all, optional }: WrittenColumns): string {
  return all
    .map((name) => {
      if (!optional.has(name)) return `g.${id(name)}`;
      const { default: otherwise, type } = table.columns.get(name)!;
      return `case when ${has(name)} then g.${id(name)} else (${otherwise ?? 'null'})::${type} end`;
    })
    .join(', ');
}

/**
 * Rows are read before they are replaced, so no other transaction may replace them in between, and a key without rows
 * has none to lock. A few advisory locks cover all keys of a table, because each takes space in the server's lock
 * table. They are taken in order and before any row lock, and wait no longer than lock_timeout.
 */
function locking({ name }: MirrorTable): string {
  return `select pg_advisory_xact_lock(hashtext(${pg.escapeLiteral(name)}), b.bucket) from (
    select distinct hashtext(k.key) & 63 as bucket from unnest($1::text[]) as k(key) order by bucket) as b`;
}

/** Other writers do not take these locks, so rows newer than all of ours are left alone. */
function pruning({ table, keyColumns, sourceTimestamp: source }: WritePlan): string {
  const newest = source === null ? '' : `, max(g.${id(source)}) as ours`;
  const isOlder = source === null ? '' : `and (t.${id(source)} is null or t.${id(source)} <= k.ours)`;
  return `delete from ${table.name} as t using (
      select ${list(keyColumns, 'g.')}${newest} from given as g where g."~job" = any ($2::bigint[]) group by ${list(keyColumns, 'g.')}) as k
    where ${alike(keyColumns, 't', 'k')} ${isOlder} and not exists (select from given as g where ${alike(table.target, 'g', 't')})`;
}

/**
 * Rows written after the answer was fetched stay: it says nothing about them. The counts are from before the
 * delete.
 */
function removing({ table, keyColumns, timestamp }: WritePlan): string {
  return `with ${givenRows(table.columns, keyColumns)}, removed as (
      delete from ${table.name} as t using given as g
      where ${alike(keyColumns, 't', 'g')} and (t.${id(timestamp)} is null or t.${id(timestamp)} <= ${at} or t.${id(timestamp)} > $2::timestamptz)
      returning g."~job")
    select g."~job" as job, (select count(*) from ${table.name} as t where ${alike(keyColumns, 't', 'g')})::int as had,
      (select count(*) from removed as r where r."~job" = g."~job")::int as lost,
      (select max(t.${id(timestamp)}) from ${table.name} as t where ${alike(keyColumns, 't', 'g')} and t.${id(timestamp)} > ${at} and t.${id(timestamp)} <= $2::timestamptz)::text as "rowAt"
    from given as g`;
}

function evicting({ table, keyColumns }: WritePlan): string {
  return `with ${givenRows(table.columns, keyColumns)}
    delete from ${table.name} as t using given as g where ${alike(keyColumns, 't', 'g')}`;
}

// json_to_recordset converts the whole set to the table's types. No column name can contain ~.
function givenRows(columns: ReadonlyMap<string, TableColumn>, names: readonly string[]): string {
  const typed = names.map((name) => `${id(name)} ${columns.get(name)!.type}`);
  return `given as materialized (
    select g.* from json_to_recordset($1::json) as g(${[...typed, '"~job" bigint', '"~age" double precision'].join(', ')}))`;
}

/** Row by row: an older row never replaces a newer one, even with concurrent writers. */
function merging(plan: WritePlan, written: WrittenColumns): string {
  const { table, timestamp, sourceTimestamp: source, fetcher } = plan;
  const greater = fetcher.write.ifGreater;
  const guards = [
    source === null
      ? `(t.${id(timestamp)} is null or t.${id(timestamp)} <= excluded.${id(timestamp)} or t.${id(timestamp)} > $2::timestamptz)`
      : `(t.${id(source)} is null or t.${id(source)} < excluded.${id(source)})`,
    ...(greater === undefined ? [] : [`(t.${id(greater)} is null or t.${id(greater)} < excluded.${id(greater)})`]),
  ];
  // An unwritten row of the same time but other content contradicts the stored one; with ifGreater that is normal.
  const isOlder = source === null ? `had.${id(timestamp)} > ${at}` : `g.${id(source)} < had.${id(source)}`;
  const isOther = greater !== undefined ? isOlder : source === null ? 'true' : `not (${same(plan, written)})`;
  return `written as (
    insert into ${table.name} as t (${list([...written.all, timestamp])})
    select ${inserted(plan, written)}, ${at} from given as g order by ${list(table.target, 'g.')}
    on conflict (${list(table.target)}) do update set ${assignments(plan, written)}
    where ${guards.join(' and ')}
    returning ${list([...table.target, timestamp], 't.')})
  select g."~job" as job, count(w.*)::int as written, (count(*) filter (where w.* is null and ${isOther}))::int as other, 0 as had,
    max(case when w.* is null then had.${id(timestamp)} else w.${id(timestamp)} end)::text as "rowAt", ${sourceTime(plan)} as "sourceAt"
  from given as g left join written as w on ${alike(table.target, 'w', 'g')} left join ${table.name} as had on ${alike(table.target, 'had', 'g')}
  group by g."~job"`;
}

/** All rows of a key together: their age is that of the newest. */
function replacing(plan: WritePlan, written: WrittenColumns): string {
  const { table, keyColumns, timestamp, sourceTimestamp: source } = plan;
  const ours = source === null ? `max(${at})` : `max(g.${id(source)})`;
  const theirs =
    source === null
      ? `max(t.${id(timestamp)}) filter (where t.${id(timestamp)} <= $2::timestamptz)`
      : `max(t.${id(source)})`;
  const isNewer = source === null ? 'j.theirs is null or j.theirs <= j.ours' : 'j.theirs is null or j.theirs < j.ours';
  const unlessNewer =
    source === null
      ? ''
      : `where t.${id(source)} is null or t.${id(source)} <= (select max(j.ours) from judged as j where ${alike(keyColumns, 'j', 't')})`;
  return `judged as (
    select j.*, (${isNewer}) as newer from (
      select g."~job", ${list(keyColumns, 'g.')}, ${ours} as ours, count(*) as rows, ${sourceTime(plan)} as at_source,
        (select max(t.${id(timestamp)}) from ${table.name} as t where ${alike(keyColumns, 't', 'g')}) as had_at,
        (select ${theirs} from ${table.name} as t where ${alike(keyColumns, 't', 'g')}) as theirs,
        (select count(*) from ${table.name} as t where ${alike(keyColumns, 't', 'g')}) as had
      from given as g group by g."~job", ${list(keyColumns, 'g.')}
    ) as j),
  written as (
    insert into ${table.name} as t (${list([...written.all, timestamp])})
    select ${inserted(plan, written)}, ${at} from given as g join judged as j on j."~job" = g."~job" and j.newer order by ${list(table.target, 'g.')}
    on conflict (${list(table.target)}) do update set ${assignments(plan, written)} ${unlessNewer}
    returning ${list([...keyColumns, timestamp], 't.')})
  select j."~job" as job, j.at_source as "sourceAt", (case when j.newer then w.at else j.had_at end)::text as "rowAt", case when j.newer then j.rows else 0 end::int as written,
    case when j.newer or (j.theirs = j.ours and j.had = j.rows and not exists (
      select from given as g left join ${table.name} as had on ${alike(table.target, 'had', 'g')} where g."~job" = j."~job" and not (${same(plan, written)}))) then 0 else 1 end as other, j.had::int as had
  from judged as j left join (
    select ${list(keyColumns, 'w.')}, max(w.${id(timestamp)}) as at from written as w group by ${list(keyColumns, 'w.')}
  ) as w on ${alike(keyColumns, 'w', 'j')}`;
}

const times = new Set(['timestamptz', 'timestamp', 'date']);

/** The answer's time at the source, if that column holds times. */
function sourceTime({ table, sourceTimestamp: source }: WritePlan): string {
  const isTime = source !== null && times.has(table.columns.get(source)?.base ?? '');
  return isTime ? `max(g.${id(source)})::timestamptz::text` : 'null::text';
}

/** When the answer was fetched, by the database's clock. */
const at = `$2::timestamptz - make_interval(secs => g."~age")`;

function assignments({ table, timestamp, fetcher }: WritePlan, { all, optional }: WrittenColumns): string {
  return [...all, timestamp]
    .filter((name) => !table.target.includes(name))
    .map((name) => {
      const value = fetcher.nulls === 'keep' ? `coalesce(excluded.${id(name)}, t.${id(name)})` : `excluded.${id(name)}`;
      const kept = optional.has(name) ? `case when ${has(name)} then ${value} else t.${id(name)} end` : value;
      return `${id(name)} = ${kept}`;
    })
    .join(', ');
}

// Types without an equality operator are compared as text.
const withoutEquality = new Set(['json', 'xml', 'point', 'line', 'lseg', 'box', 'path', 'polygon', 'circle']);

/** Whether a row's content equals the stored row. */
function same({ table, timestamp, fetcher }: WritePlan, { all, optional }: WrittenColumns): string {
  const compared = all.filter((name) => !table.target.includes(name) && name !== timestamp);
  const pairs = compared.map((name) => {
    const cast = withoutEquality.has(table.columns.get(name)!.base) ? '::text' : '';
    const lacking = optional.has(name) ? `not ${has(name)} or ` : '';
    const kept = fetcher.nulls === 'keep' ? `g.${id(name)} is null or ` : '';
    return `(${lacking}${kept}had.${id(name)}${cast} is not distinct from g.${id(name)}${cast})`;
  });
  return [`had.${id(table.target[0]!)} is not null`, ...pairs].join(' and ');
}

function named(text: string): Statement {
  return { name: `pgfresh.write.${createHash('sha256').update(text).digest('hex').slice(0, 24)}`, text };
}
