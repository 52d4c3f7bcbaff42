/** What the client has to know of a data type; `defineDataType` returns it. */
export interface DataTypeLike {
  readonly name: string;
  readonly row?: unknown;
}

/** A row of a data type that says nothing about its columns. */
export type JsonRow = Readonly<Record<string, unknown>>;

/**
 * Where you name your data types once, so that hooks and clients know them:
 * `declare module 'pgfresh/client' { interface Register { types: typeof types } }`.
 */
export interface Register {}

/** The data types that are registered; any names and any rows if none are. */
export type RegisteredTypes = Register extends { readonly types: infer Types extends object }
  ? Types
  : Record<string, JsonRow>;

/** The names of data types. */
export type NameOf<Types extends object> = Types extends readonly DataTypeLike[]
  ? Types[number]['name']
  : Extract<keyof Types, string>;

/** A row of the data type with this name, as it arrives: what is a Date in the schema is a text. */
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

// A column is always there.
type NullIfLeftOut<Value> = undefined extends Value ? null : never;
