import type { DataType } from '../config/index.ts';
import type { RegistryFinding } from './finding.ts';
import { jsonSchemaOf, type JsonSchema } from './json-schema.ts';
import { didYouMean } from './row-columns.ts';
import type { TableColumn } from './table-columns.ts';

const numbers = ['number', 'integer'];
/** The JSON types that a column accepts, by its type. Unlisted types accept anything. */
const accepted: Readonly<Record<string, readonly string[]>> = {
  ...Object.fromEntries(['int2', 'int4', 'float4', 'float8'].map((type) => [type, numbers])),
  // Exact numbers often come as strings.
  ...Object.fromEntries(['int8', 'numeric'].map((type) => [type, [...numbers, 'string']])),
  ...Object.fromEntries(
    ['text', 'varchar', 'bpchar', 'citext', 'uuid', 'enum', 'date', 'time', 'timetz', 'timestamp', 'timestamptz'].map(
      (type) => [type, ['string']],
    ),
  ),
  bool: ['boolean'],
  array: ['array'],
};

/** Mismatches between the row schema of a data type and its table. */
export function rowFindings(
  type: Pick<DataType, 'name' | 'table' | 'timestamp' | 'row'>,
  columns: readonly TableColumn[],
): RegistryFinding[] {
  // A missing table is reported by another check.
  if (type.row === undefined || columns.length === 0) return [];
  const name = `data type ${type.name}`;
  const read = jsonSchemaOf(type.row);
  if ('problem' in read || read.schema.properties === undefined) {
    const reason = 'problem' in read ? read.problem : 'it is not that of one object';
    return [{ name, state: 'ok', detail: `row: the schema cannot be compared with ${type.table}: ${reason}` }];
  }
  return [...problemsOf(read.schema, type, columns)].map(([detail, next]) => ({
    name,
    state: 'fatal',
    detail: `row: ${detail}`,
    code: 'PGF_ROW_MISMATCH',
    next,
  }));
}

function* problemsOf(
  { properties = {}, required = [] }: JsonSchema,
  { table, timestamp }: Pick<DataType, 'table' | 'timestamp'>,
  columns: readonly TableColumn[],
): Generator<[detail: string, next: string]> {
  const names = columns.map((column) => column.name);
  for (const field of Object.keys(properties)) {
    if (names.includes(field)) continue;
    yield [
      `${table} has no column ${field}${didYouMean(field, names)}`,
      `Add the column to ${table}, or take the field out of the schema.`,
    ];
  }
  for (const column of columns) {
    const field = Object.hasOwn(properties, column.name) ? properties[column.name] : undefined;
    const place = `column ${column.name} of ${table}`;
    const isNeeded = column.required && !column.filled;
    if (field === undefined) {
      // pgfresh writes the timestamp itself.
      if (!isNeeded || column.name === timestamp) continue;
      yield [
        `${place} is not null and has no default, and the schema lacks it`,
        `Add the field ${column.name} to the schema, or give the column a default.`,
      ];
      continue;
    }
    const types = typesOf(field);
    if (isNeeded && !required.includes(column.name)) {
      yield [
        `${place} is not null and has no default, and the schema has it optional`,
        `Make the field ${column.name} required, or give the column a default.`,
      ];
    }
    // A default does not replace an explicit null.
    if (column.required && types?.includes('null')) {
      yield [
        `${place} is not null, and the schema allows null`,
        `Do not allow null for the field ${column.name}, or drop the column's not null.`,
      ];
    }
    const fits = accepted[column.base];
    const wrong = fits && types?.find((one) => one !== 'null' && !fits.includes(one));
    if (wrong !== undefined) {
      yield [
        `${place} is ${column.type}, and the schema has ${wrong}`,
        `Give the field ${column.name} the type of the column, or change the column.`,
      ];
    }
  }
}

/** The types that a value may have; undefined if unknown. */
function typesOf(schema: JsonSchema): readonly string[] | undefined {
  const branches = schema.anyOf ?? schema.oneOf;
  if (branches) {
    const types = branches.map(typesOf);
    return types.includes(undefined) ? undefined : types.flatMap((one) => one!);
  }
  return typeof schema.type === 'string' ? [schema.type] : schema.type;
}
