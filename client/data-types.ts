/** The part of a data type that the client needs; `defineDataType` returns it. */
export interface DataTypeLike {
  readonly name: string;
  readonly row?: unknown;
}

/** A row of a data type that does not declare its columns. */
export type JsonRow = Readonly<Record<string, unknown>>;

/**
 * Register your data types here once, so that hooks and clients are typed:
 * `declare module 'pgfresh/client' { interface Register { types: typeof types } }`.
 */
export interface Register {}

/** The registered data types; without any, all names and rows are allowed. */
export type RegisteredTypes = Register extends { readonly types: infer Types extends object }
  ? Types
  : Record<string, JsonRow>;

/** The names of data types. */
export type NameOf<Types extends object> = Types extends readonly DataTypeLike[]
  ? Types[number]['name']
  : Extract<keyof Types, string>;

/** A row of the data type with this name, as it arrives: a Date of the schema is a string. */
export type RowOf<Types extends object, Name extends string> = Types extends readonly DataTypeLike[]
  ? RowOfSchema<NonNullable<Extract<Types[number], { readonly name: Name }>['row']>>
  : Name extends keyof Types
    ? Types[Name]
    : never;

type RowOfSchema<Schema> = Schema extends { readonly '~standard': { readonly types?: infer Written } }
  ? NonNullable<Written> extends { readonly output: infer Row }
    ? unknown extends Row
      ? JsonRow
      : Json<Row>
    : JsonRow
  : JsonRow;

type Json<Value> = Value extends Date
  ? string
  : Value extends bigint
    ? number
    : Value extends readonly (infer Item)[]
      ? readonly Json<Item>[]
      : Value extends object
        ? { readonly [Column in keyof Value]-?: Json<Exclude<Value[Column], undefined>> | NullIfLeftOut<Value[Column]> }
        : Value;

// Every column is present; one that is optional in the schema may be null.
type NullIfLeftOut<Value> = undefined extends Value ? null : never;
