import { createHash } from 'node:crypto';
import pg from 'pg';
import type { Statement } from '../database/index.ts';
import type { TableColumn } from '../registry/index.ts';
import type { Fetcher, MirrorTable } from './refresh-type.ts';

/** By what rows are written. */
interface WritePlan {
  readonly table: MirrorTable;
  readonly keyColumns: readonly string[];
  readonly timestamp: string;
  readonly sourceTimestamp: string | null;
  readonly emptyRows: 'keep' | 'delete';
  readonly fetcher: Pick<Fetcher, 'write' | 'nulls'>;
}

export interface WriteStatement {
  /** ($1 rows as JSON, each with ~job and ~age; $2 the database's time) → job, written, other, had, rowAt, sourceAt */
  readonly upsert: Statement;
  /** ($1 rows as JSON, $2 the jobs whose rows were written): deletes what their answers lack. Only where rows are replaced. */
  readonly prune: Statement | undefined;
}

/** The statements of a data type, one for each set of columns that its rows have. */
export class WriteStatements {
  readonly #plan: WritePlan;
  readonly #known = new Map<string, WriteStatement>();
  /** ($1 keys): has other writers of these keys wait. Only where rows are replaced. */
  readonly lock: Statement | undefined;
  /** ($1 keys as JSON, by their columns, each with ~job and ~age; $2 the database's time) → job, had, lost, rowAt. Only where rows go. */
  readonly remove: Statement | undefined;
  /** ($1 keys as JSON, by their columns): deletes all rows of these keys. */
  readonly evict: Statement;

  constructor(plan: WritePlan) {
    this.#plan = plan;
    this.lock = plan.fetcher.write.mode === 'replace' ? named(locking(plan.table)) : undefined;
    this.remove = plan.emptyRows === 'delete' ? named(removing(plan)) : undefined;
    this.evict = named(evicting(plan));
  }

  for(columns: readonly string[]): WriteStatement {
    const name = columns.join();
    const known = this.#known.get(name) ?? writeStatement(this.#plan, columns);
    this.#known.set(name, known);
    return known;
  }
}

const id = (name: string): string => pg.escapeIdentifier(name);
const list = (names: readonly string[], alias = ''): string => names.map((name) => `${alias}${id(name)}`).join(', ');
const alike = (names: readonly string[], a: string, b: string): string =>
  names.map((name) => `${a}.${id(name)} = ${b}.${id(name)}`).join(' and ');

function writeStatement(plan: WritePlan, columns: readonly string[]): WriteStatement {
  const { table, fetcher } = plan;
  const given = givenRows(table.columns, columns);
  const replaces = fetcher.write.mode === 'replace';
  const upsert = replaces ? replacing(plan, columns) : merging(plan, columns);
  return {
    upsert: named(`with ${given}, ${upsert}`),
    prune: replaces ? named(`with ${given} ${pruning(plan)}`) : undefined,
  };
}

/**
 * What is there is read before it is replaced, so nobody else may replace it meanwhile; where nothing is there yet, there
 * is no row to lock. A few locks stand for all keys of a table, because each takes a place in the server's memory. They
 * are waited for, in their order and before any row, no longer than lock_timeout.
 */
function locking({ name }: MirrorTable): string {
  return `select pg_advisory_xact_lock(hashtext(${pg.escapeLiteral(name)}), b.bucket) from (
    select distinct hashtext(k.key) & 63 as bucket from unnest($1::text[]) as k(key) order by bucket) as b`;
}

/** Whoever writes without us is not kept waiting: rows that are newer than all of ours are not touched. */
function pruning({ table, keyColumns, sourceTimestamp: source }: WritePlan): string {
  const newest = source === null ? '' : `, max(g.${id(source)}) as ours`;
  const isOlder = source === null ? '' : `and (t.${id(source)} is null or t.${id(source)} <= k.ours)`;
  return `delete from ${table.name} as t using (
      select ${list(keyColumns, 'g.')}${newest} from given as g where g."~job" = any ($2::bigint[]) group by ${list(keyColumns, 'g.')}) as k
    where ${alike(keyColumns, 't', 'k')} ${isOlder} and not exists (select from given as g where ${alike(table.target, 'g', 't')})`;
}

/**
 * Rows that were written after the answer was fetched stay: it says nothing about them. What is counted beside the
 * delete is what was there before it.
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

// json_to_recordset reads the whole set by the types of the table; ~ can be in no name of a column.
function givenRows(columns: ReadonlyMap<string, TableColumn>, names: readonly string[]): string {
  const typed = names.map((name) => `${id(name)} ${columns.get(name)!.type}`);
  return `given as materialized (
    select g.* from json_to_recordset($1::json) as g(${[...typed, '"~job" bigint', '"~age" double precision'].join(', ')}))`;
}

/** Each row by itself: the older never replaces the newer, whoever else writes at this moment. */
function merging(plan: WritePlan, columns: readonly string[]): string {
  const { table, timestamp, sourceTimestamp: source, fetcher } = plan;
  const greater = fetcher.write.ifGreater;
  const guards = [
    source === null
      ? `(t.${id(timestamp)} is null or t.${id(timestamp)} <= excluded.${id(timestamp)} or t.${id(timestamp)} > $2::timestamptz)`
      : `(t.${id(source)} is null or t.${id(source)} < excluded.${id(source)})`,
    ...(greater === undefined ? [] : [`(t.${id(greater)} is null or t.${id(greater)} < excluded.${id(greater)})`]),
  ];
  // What is not written is the same, or it is not: then the provider tells two things of one time. A row that is only not greater is nobody's mistake.
  const isOlder = source === null ? `had.${id(timestamp)} > ${at}` : `g.${id(source)} < had.${id(source)}`;
  const isOther = greater !== undefined ? isOlder : source === null ? 'true' : `not (${same(plan, columns)})`;
  return `written as (
    insert into ${table.name} as t (${list([...columns, timestamp])})
    select ${list(columns, 'g.')}, ${at} from given as g order by ${list(table.target, 'g.')}
    on conflict (${list(table.target)}) do update set ${assignments({ table, fetcher }, [...columns, timestamp])}
    where ${guards.join(' and ')}
    returning ${list([...table.target, timestamp], 't.')})
  select g."~job" as job, count(w.*)::int as written, (count(*) filter (where w.* is null and ${isOther}))::int as other, 0 as had,
    max(case when w.* is null then had.${id(timestamp)} else w.${id(timestamp)} end)::text as "rowAt", ${sourceTime(plan)} as "sourceAt"
  from given as g left join written as w on ${alike(table.target, 'w', 'g')} left join ${table.name} as had on ${alike(table.target, 'had', 'g')}
  group by g."~job"`;
}

/** All rows of a key together: they are as old as the newest of them. */
function replacing(plan: WritePlan, columns: readonly string[]): string {
  const { table, keyColumns, timestamp, sourceTimestamp: source, fetcher } = plan;
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
    insert into ${table.name} as t (${list([...columns, timestamp])})
    select ${list(columns, 'g.')}, ${at} from given as g join judged as j on j."~job" = g."~job" and j.newer order by ${list(table.target, 'g.')}
    on conflict (${list(table.target)}) do update set ${assignments({ table, fetcher }, [...columns, timestamp])} ${unlessNewer}
    returning ${list([...keyColumns, timestamp], 't.')})
  select j."~job" as job, j.at_source as "sourceAt", (case when j.newer then w.at else j.had_at end)::text as "rowAt", case when j.newer then j.rows else 0 end::int as written,
    case when j.newer or (j.theirs = j.ours and j.had = j.rows and not exists (
      select from given as g left join ${table.name} as had on ${alike(table.target, 'had', 'g')} where g."~job" = j."~job" and not (${same(plan, columns)}))) then 0 else 1 end as other, j.had::int as had
  from judged as j left join (
    select ${list(keyColumns, 'w.')}, max(w.${id(timestamp)}) as at from written as w group by ${list(keyColumns, 'w.')}
  ) as w on ${alike(keyColumns, 'w', 'j')}`;
}

const times = new Set(['timestamptz', 'timestamp', 'date']);

/** Of which time an answer is at its source, where the column that says it holds times. */
function sourceTime({ table, sourceTimestamp: source }: WritePlan): string {
  const isTime = source !== null && times.has(table.columns.get(source)?.base ?? '');
  return isTime ? `max(g.${id(source)})::timestamptz::text` : 'null::text';
}

/** When the answer of a row was fetched, by the database's clock. */
const at = `$2::timestamptz - make_interval(secs => g."~age")`;

function assignments({ table, fetcher }: Pick<WritePlan, 'table' | 'fetcher'>, columns: readonly string[]): string {
  return columns
    .filter((name) => !table.target.includes(name))
    .map((name) => {
      const value = fetcher.nulls === 'keep' ? `coalesce(excluded.${id(name)}, t.${id(name)})` : `excluded.${id(name)}`;
      return `${id(name)} = ${value}`;
    })
    .join(', ');
}

// Types without an equality of their own are compared as texts.
const withoutEquality = new Set(['json', 'xml', 'point', 'line', 'lseg', 'box', 'path', 'polygon', 'circle']);

/** Whether the content of a row is what is there. */
function same({ table, timestamp, fetcher }: WritePlan, columns: readonly string[]): string {
  const compared = columns.filter((name) => !table.target.includes(name) && name !== timestamp);
  const pairs = compared.map((name) => {
    const cast = withoutEquality.has(table.columns.get(name)!.base) ? '::text' : '';
    const kept = fetcher.nulls === 'keep' ? `g.${id(name)} is null or ` : '';
    return `(${kept}had.${id(name)}${cast} is not distinct from g.${id(name)}${cast})`;
  });
  return [`had.${id(table.target[0]!)} is not null`, ...pairs].join(' and ');
}

function named(text: string): Statement {
  return { name: `pgfresh.write.${createHash('sha256').update(text).digest('hex').slice(0, 24)}`, text };
}
