import type { TableColumn } from '../registry/index.ts';
import { Refusal } from './outcomes.ts';

/** A row whose values can be passed to PostgreSQL as JSON without loss. */
export type WritableRow = Readonly<Record<string, unknown>>;

/**
 * Converts a row and adds it to `writable`. Undefined fields are left out, so their columns keep their values. A null
 * in a NOT NULL column is refused here, where the column can be named.
 */
export function writableRow(
  row: object,
  columns: ReadonlyMap<string, TableColumn>,
  writable: Record<string, unknown>,
  omitted: string,
): WritableRow {
  for (const name of Object.keys(row)) {
    const value = (row as Record<string, unknown>)[name];
    if (value === undefined || name === omitted || Object.hasOwn(writable, name)) continue;
    const column = columns.get(name);
    if (!column) throw new Refusal('schema', `the table has no column ${name}`);
    if (value === null && column.required) throw new Refusal('schema', `${name} is null, and its column takes none`);
    writable[name] = jsonValue(value, name);
  }
  return writable;
}

function jsonValue(value: unknown, name: string): unknown {
  if (typeof value === 'string' || (typeof value === 'number' && Number.isFinite(value))) return value;
  if (typeof value === 'bigint') return String(value);
  if (value instanceof Date) return dateText(value, name);
  if (value instanceof Uint8Array) return `\\x${Buffer.from(value).toString('hex')}`;
  // JSON would turn it into null or drop it.
  if (typeof value === 'number' || typeof value === 'symbol' || typeof value === 'function') {
    throw new Refusal('schema', `${name} is ${String(value)}, which cannot be written`);
  }
  return value;
}

function dateText(date: Date, name: string): string {
  if (Number.isNaN(date.getTime())) throw new Refusal('schema', `${name} is a date that does not exist`);
  return date.toISOString();
}

/** A row's value as the text that it has in a key. */
export function keyText(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  if (value instanceof Date) return value.toISOString();
  return ['number', 'bigint', 'boolean'].includes(typeof value) ? String(value) : undefined;
}
