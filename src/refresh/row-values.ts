import type { TableColumn } from '../registry/index.ts';
import { Refusal } from './outcomes.ts';

/** A row whose values can be handed to PostgreSQL as JSON without losing anything. */
export type WritableRow = Readonly<Record<string, unknown>>;

/**
 * The row as it can be written. A field that is undefined is left out: its column keeps what it has. A null in a column
 * that takes none is refused here, where it can be said which one.
 */
export function writableRow(row: object, columns: ReadonlyMap<string, TableColumn>): WritableRow {
  const writable: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(row)) {
    if (value === undefined) continue;
    const column = columns.get(name);
    if (!column) throw new Refusal('schema', `the table has no column ${name}`);
    if (value === null && column.required) throw new Refusal('schema', `${name} is null, and its column takes none`);
    writable[name] = jsonValue(value, name);
  }
  return writable;
}

function jsonValue(value: unknown, name: string): unknown {
  if (typeof value === 'bigint') return String(value);
  if (value instanceof Date) return dateText(value, name);
  if (value instanceof Uint8Array) return `\\x${Buffer.from(value).toString('hex')}`;
  // JSON would make a null of it, or nothing.
  if ((typeof value === 'number' && !Number.isFinite(value)) || ['symbol', 'function'].includes(typeof value)) {
    throw new Refusal('schema', `${name} is ${String(value)}, which cannot be written`);
  }
  return value;
}

function dateText(date: Date, name: string): string {
  if (Number.isNaN(date.getTime())) throw new Refusal('schema', `${name} is a date that does not exist`);
  return date.toISOString();
}

/** A value of a row as the text that it would have in a key. */
export function keyText(value: unknown): string | undefined {
  if (value instanceof Date) return value.toISOString();
  return ['string', 'number', 'bigint', 'boolean'].includes(typeof value) ? String(value) : undefined;
}
