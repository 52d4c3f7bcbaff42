import { hintFor, invalid, type Definitions } from '../config/index.ts';
import { PgfreshError } from '../errors/index.ts';
import {
  sourceColumns,
  typeColumns,
  valueText,
  type Override,
  type SourceRow,
  type StoredSource,
  type TypeRow,
  type Value,
} from './columns.ts';
import { sourceRow, typeRow } from './row.ts';

/** The rows of the two tables. */
export interface RegistryRows {
  readonly sources: readonly StoredSource[];
  readonly types: readonly TypeRow[];
}

/** A changed column, with human-readable values. */
export interface ColumnChange {
  readonly column: string;
  readonly from: string;
  readonly to: string;
}

export interface Added<R> {
  readonly name: string;
  readonly row: R;
}

export interface Changed<R> extends Added<R> {
  readonly changes: readonly ColumnChange[];
}

/** A source setting that an operator overrode, with human-readable values. */
export interface Overridden extends Pick<Override, 'by' | 'at' | 'reason'> {
  readonly name: string;
  readonly column: string;
  readonly value: string;
  readonly configured: string;
}

/** The changes that make the database match the configuration. Types come after those that they need. */
export interface RegistryDiff {
  readonly sources: {
    readonly added: readonly Added<SourceRow>[];
    readonly changed: readonly Changed<SourceRow>[];
    /** Settings that an operator overrode in the database; a sync keeps them. */
    readonly overridden: readonly Overridden[];
  };
  readonly types: {
    readonly added: readonly Added<TypeRow>[];
    readonly changed: readonly Changed<TypeRow>[];
    readonly removed: readonly string[];
  };
  /** All types to write, added and changed ones together. */
  readonly order: readonly string[];
}

/**
 * The difference between configuration and database. Rows managed by SQL are left alone, and a configured type of the
 * same name is refused. If the configuration does not mention data types, none changes.
 */
export function diffRegistry(
  wanted: Definitions & { readonly file?: string | undefined },
  rows: RegistryRows,
): RegistryDiff {
  const file = wanted.file ?? 'the configuration';
  const there = new Map(rows.types.map((row) => [row.data_type, row]));
  const types = (wanted.dataTypes ?? []).map(typeRow);
  const names = new Set(types.map((row) => row.data_type));
  const foreign = rows.types.filter((row) => row['managed_by'] === 'sql');
  for (const { data_type: type } of foreign) {
    if (names.has(type)) throw new PgfreshError('PGF_TYPE_MANAGED_BY_SQL', { type });
  }
  const removed = wanted.dataTypes
    ? rows.types
        .filter((row) => row['managed_by'] === 'config' && !names.has(row.data_type))
        .map((row) => row.data_type)
    : [];
  refuseNeeded(removed, foreign);
  const staying = [...foreign.map((row) => row.data_type), ...names];
  const sources = wanted.sources.map(sourceRow);
  const knownSources = [...new Set([...sources, ...rows.sources].map(({ name }) => name))];
  for (const [index, row] of types.entries()) {
    refuseUnknown(
      [String(row.source)],
      knownSources,
      `dataTypes[${index}].source ("${row.data_type}")`,
      'source',
      file,
    );
    refuseUnknown(row.depends_on, staying, `dataTypes[${index}].dependsOn ("${row.data_type}")`, 'data type', file);
  }
  const added = types.filter((row) => !there.has(row.data_type));
  const changed = types.flatMap((row) => changeOf(row.data_type, row, there.get(row.data_type), typeColumns));
  const written = new Set([...added, ...changed.map(({ row }) => row)].map((row) => row.data_type));
  return {
    sources: {
      added: sources
        .filter(({ name }) => !rows.sources.some((row) => row.name === name))
        .map((row) => ({ name: row.name, row })),
      changed: sources.flatMap((row) => {
        const before = rows.sources.find(({ name }) => name === row.name);
        return before ? changeOf(row.name, withoutOverridden(row, before), asConfigured(before), sourceColumns) : [];
      }),
      overridden: sources.flatMap((row) => {
        const before = rows.sources.find(({ name }) => name === row.name);
        return before ? overriddenOf(row, before) : [];
      }),
    },
    types: { added: added.map((row) => ({ name: row.data_type, row })), changed, removed },
    order: inOrderOfNeed([...foreign, ...types]).filter((name) => written.has(name)),
  };
}

export function isEmpty({ sources, types }: RegistryDiff): boolean {
  return [sources.added, sources.changed, types.added, types.changed, types.removed].every((list) => list.length === 0);
}

/** A short list of what changes. */
export function namesOf({ sources, types }: RegistryDiff): string {
  return [
    ...[...sources.added, ...sources.changed].map(({ name }) => `source ${name}`),
    ...[...types.added, ...types.changed].map(({ name }) => `data type ${name}`),
    ...types.removed.map((name) => `data type ${name} (removed)`),
  ].join(', ');
}

function changeOf<R extends object>(
  name: string,
  row: R,
  before: R | undefined,
  columns: Parameters<typeof valueText>[0],
): Changed<R>[] {
  if (!before) return [];
  const changes = Object.entries(row as Record<string, Value>).flatMap(([column, to]) => {
    const from = (before as Record<string, Value>)[column] ?? null;
    if (same(from, to)) return [];
    return [{ column, from: valueText(columns, column, from), to: valueText(columns, column, to) }];
  });
  return changes.length === 0 ? [] : [{ name, row, changes }];
}

/** Settings overridden since the configuration last changed them. */
function stillOverridden(row: SourceRow, { config, overrides }: StoredSource): string[] {
  return Object.keys(overrides).filter((column) =>
    same(inMs(column, config[column] ?? null), (row as Record<string, Value>)[column] ?? null),
  );
}

function withoutOverridden(row: SourceRow, before: StoredSource): SourceRow {
  const kept = new Set(stillOverridden(row, before));
  return Object.fromEntries(Object.entries(row).filter(([column]) => !kept.has(column))) as SourceRow;
}

/** The row as last configured, so that a new configured value counts as a change even if an operator set the same. */
function asConfigured({ config, overrides, ...row }: StoredSource): SourceRow {
  const said = Object.keys(overrides).map((column): [string, Value] => [column, inMs(column, config[column] ?? null)]);
  return { ...row, ...Object.fromEntries(said) };
}

function overriddenOf(row: SourceRow, before: StoredSource): Overridden[] {
  return stillOverridden(row, before).map((column) => {
    const { value, config_value: configured, by, at, reason } = before.overrides[column]!;
    const text = (one: Value): string => valueText(sourceColumns, column, inMs(column, one));
    return { name: row.name, column, value: text(value), configured: text(configured), by, at, reason };
  });
}

function inMs(column: string, value: Value): Value {
  const isInterval = sourceColumns[column as keyof typeof sourceColumns] === 'interval';
  return isInterval && typeof value === 'number' ? value * 1000 : value;
}

// PostgreSQL rounds to microseconds and six digits; a stored value must not look changed when read back.
function same(a: Value, b: Value): boolean {
  if (typeof a === 'number' && typeof b === 'number') return Math.abs(a - b) < 0.001;
  return JSON.stringify(a) === JSON.stringify(b);
}

function refuseUnknown(
  names: readonly string[],
  known: readonly string[],
  path: string,
  what: string,
  file: string,
): void {
  const unknown = names.find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const hint = known.length === 0 ? 'there are none yet' : hintFor(unknown, known);
  throw invalid(file, path, `neither the configuration nor the database has a ${what} "${unknown}"; ${hint}`);
}

function refuseNeeded(removed: readonly string[], foreign: readonly TypeRow[]): void {
  for (const row of foreign) {
    const type = removed.find((name) => row.depends_on.includes(name));
    if (type !== undefined) throw new PgfreshError('PGF_TYPE_NEEDED', { type, by: row.data_type });
  }
}

/** Each name after those that it needs. Tolerates cycles, which are refused earlier or by the database. */
function inOrderOfNeed(rows: readonly TypeRow[]): string[] {
  const byName = new Map(rows.map((row) => [row.data_type, row]));
  const order = new Set<string>();
  const entered = new Set<string>();
  const visit = (name: string): void => {
    if (entered.has(name)) return;
    entered.add(name);
    for (const needed of byName.get(name)?.depends_on ?? []) visit(needed);
    order.add(name);
  };
  for (const { data_type: name } of rows) visit(name);
  return [...order];
}
