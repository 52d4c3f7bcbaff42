import { nearMiss, type RowSchema } from '../config/index.ts';
import { jsonSchemaOf } from './json-schema.ts';

// Cached: a worker asks every few seconds, and converting a schema takes milliseconds.
const known = new WeakMap<RowSchema, readonly string[] | undefined>();

/** The columns that a row schema accepts; undefined if unknown. */
export function rowColumns(row: RowSchema): readonly string[] | undefined {
  if (known.has(row)) return known.get(row);
  const read = jsonSchemaOf(row);
  const columns = 'schema' in read && read.schema.properties ? Object.keys(read.schema.properties) : undefined;
  known.set(row, columns);
  return columns;
}

/** "; did you mean …?", or an empty string. */
export function didYouMean(name: string, names: readonly string[]): string {
  const near = nearMiss(name, names);
  return near ? `; did you mean "${near}"?` : '';
}
