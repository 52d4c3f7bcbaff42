import { z } from 'zod';
import { bytes, type Bytes } from './bytes.ts';
import { definedName, identifier, options, qualifiedName } from './definition.ts';
import { durationBetween, type Duration } from './duration.ts';
import { fetching, type AnswerContext, type Bounds, type Empty, type RequestContext, type Write } from './fetching.ts';
import type { HttpRequest } from './http-request.ts';
import { patternText } from './pattern.ts';
import { cron, zone } from './schedule.ts';
import type { SourceDefinition } from './source.ts';
import { isRowSchema, type InputOf, type OutputOf, type RowSchema } from './standard-schema.ts';

/** A row as `rows` returns it: what the schema `row` takes, or any object where there is none. */
export type RowOf<Row extends RowSchema> = unknown extends InputOf<Row> ? object : InputOf<Row> & object;

type Dependencies = readonly (string | { readonly name: string })[];

/** The columns of a row: those of the schema `row`, else those of what `rows` returns, else any. */
type ColumnOf<Row extends RowSchema, Written> = NameIn<unknown extends OutputOf<Row> ? Written : OutputOf<Row>>;
type NameIn<T> = [KeyIn<T>] extends [never] ? string : KeyIn<T>;
type KeyIn<T> = T extends unknown ? Extract<keyof T, string> : never;

// As methods, because a list of data types must take every one of them, whatever its answers are.
interface Rows<Answer extends RowSchema, Written extends object> {
  rows(answer: OutputOf<Answer>, context: AnswerContext): Written | readonly Written[] | null | undefined;
  sanity(row: Written, context: AnswerContext): string | undefined;
}

/** What is kept fresh: a table that mirrors a provider, when its rows are too old, how they are fetched and what that may cost. */
export interface DataTypeDefinition<
  Answer extends RowSchema = RowSchema,
  Row extends RowSchema = RowSchema,
  Written extends RowOf<Row> = RowOf<Row>,
  Needs extends Dependencies = Dependencies,
> {
  /** Lower-case letters, digits, `_` and `-`, starting with a letter. */
  readonly name: string;
  /** The source it is fetched from: a source of this configuration, or the name of one in the database. */
  readonly source: string | SourceDefinition;
  /** The name by which workers find the code that fetches it. Default: its own name. */
  readonly fetcher?: string | undefined;
  /** The table that mirrors the provider. In `public`, unless written as `schema.table`. */
  readonly table: string;
  /** The key column, or a list of up to 8. */
  readonly key: ColumnOf<Row, NoInfer<Written>> | readonly ColumnOf<Row, NoInfer<Written>>[];
  /** The column with the time a row was fetched, a `timestamptz`. */
  readonly timestamp: string;
  /** How long a row stays fresh. Required: only you know it. */
  readonly ttl: Duration;
  /** A column with the TTL of single rows, an `interval` or whole minutes. Default: none. */
  readonly ttlColumn?: string | undefined;
  /**
   * An SQL function `(timestamptz, interval)` or `(timestamptz, int minutes)` that returns whether a row is stale.
   * Default: `pgfresh.is_data_stale`.
   */
  readonly staleness?: string | undefined;
  /**
   * Refreshes all keys at these times, in the background; viewers then only trigger a fetch of missing rows. Needs
   * `keys`. `zone` is UTC unless set. Default: none.
   */
  readonly schedule?: { readonly cron: string; readonly zone?: string | undefined } | undefined;
  /**
   * The table that lists all keys: its name, its key column, and a boolean column that is true for keys in use.
   * Default: none.
   */
  readonly keys?: { readonly table: string; readonly column: string; readonly active?: string | undefined } | undefined;
  /**
   * A pattern that keys must match, for types without `keys`. PostgreSQL evaluates it; of the flags of a JavaScript
   * regular expression only `i` is accepted. Default: any key.
   */
  readonly keyPattern?: RegExp | string | undefined;
  /**
   * The case in which keys are stored. Only the letters A to Z change: `straße` and `STRAßE` are one key, `é` and `É`
   * are two. Default: as given.
   */
  readonly normalise?: 'upper' | 'lower' | undefined;
  /** An SQL function `(key text, data_type text)` that returns whether a row may be refreshed now. Default: always. */
  readonly gate?: string | undefined;
  /** An SQL function `(key text, data_type text)` that returns when a closed gate opens. Default: unknown. */
  readonly gateOpens?: string | undefined;
  /**
   * From `uiThreshold` viewers on, the number of viewers is the priority; below, it is `background`. Default: always
   * the number of viewers.
   */
  readonly priority?: { readonly background: number; readonly uiThreshold: number } | undefined;
  /**
   * Data types whose row for the same key must exist first: data types of this configuration or their names, or `{ name
   * }` of one that only the database knows. Default: none.
   */
  readonly dependsOn?: Needs | undefined;
  /** The estimated size of an answer, until real ones are known. Default: 0. */
  readonly estimatedBytes?: Bytes | undefined;
  /**
   * The column with the time of the data at the provider; `rows` fills it. Older data never replaces newer data.
   * Default: none.
   */
  readonly sourceTimestamp?: ColumnOf<Row, NoInfer<Written>> | undefined;
  /** The maximum age of the data at the provider, by `sourceTimestamp`, before it counts as stale. Default: any age. */
  readonly maxSourceAge?: Duration | undefined;
  /** How often a failed job is retried. Default: 3. */
  readonly maxRetries?: number | undefined;
  /** How long a job may go without progress. Default: 5m. */
  readonly maxRun?: Duration | undefined;
  /**
   * Whether all viewers see the same rows (`shared`), or each viewer the rows that row security allows (`rls`).
   * Default: shared.
   */
  readonly visibility?: 'shared' | 'rls' | undefined;
  /**
   * A schema of a row as it is written (zod, or any that follows standardschema.dev). `pgfresh check` compares it with
   * the table. Default: none.
   */
  readonly row?: Row | undefined;
  /** A schema of the answer. What it rejects is never written. Needed to fetch. */
  readonly schema?: Answer | undefined;
  /** Describes the request for a key; pgfresh makes the call. Needed to fetch. */
  readonly request?: ((key: string, context: RequestContext) => HttpRequest | Promise<HttpRequest>) | undefined;
  /**
   * Turns a validated answer into rows, each with its key as the provider returned it. No rows means that there is
   * nothing. Needed to fetch.
   */
  readonly rows?: Rows<Answer, Written>['rows'] | undefined;
  /** Bounds by column, or a function that returns what is wrong with a row. Default: none. */
  readonly sanity?:
    | { readonly [Column in ColumnOf<Row, NoInfer<Written>>]?: Bounds }
    | Rows<Answer, NoInfer<Written>>['sanity']
    | undefined;
  /**
   * Whether existing rows that the answer lacks stay (`merge`) or are deleted (`replace`). As an object, `mode` says so,
   * `maxDeletes` is the share of rows that may be deleted at once (0.25 unless set), and `ifGreater` names a column:
   * `merge` then writes only rows in which it grew. Default: merge.
   */
  readonly write?: Write<ColumnOf<Row, NoInfer<Written>>> | undefined;
  /** Whether a null overwrites an existing value (`write`) or leaves it (`keep`). Default: write. */
  readonly nulls?: 'write' | 'keep' | undefined;
  /**
   * Which answers mean that there is nothing for the key, how long that holds, and whether existing rows are deleted.
   */
  readonly empty?: Empty | undefined;
  /** Deletes the rows of keys that had no viewer for this long, at least 1h. Default: never. */
  readonly evictAfter?: Duration | undefined;
  /** The content type of the answers, where it does not contain `json`. Default: any JSON type. */
  readonly contentType?: string | undefined;
}

const million = 1_000_000;
const aSchema = z.custom<RowSchema>(
  isRowSchema,
  'expected a schema that follows standardschema.dev, such as z.object({ … })',
);
const ttl = durationBetween('1ms', '3660d');

export const dataTypeSchema = options({
  name: definedName,
  source: z
    .union([definedName, z.custom<SourceDefinition>(isNamed)], 'expected a source or the name of one')
    .transform((source) => (typeof source === 'string' ? source : source.name)),
  fetcher: z
    .string()
    .regex(/^[A-Za-z][\w.-]{0,99}$/, 'expected letters, digits, _, . and -, at most 100, that begin with a letter')
    .optional(),
  table: qualifiedName,
  key: z
    .union([identifier.transform((column) => [column]), z.array(identifier).min(1).max(8)])
    .refine((columns) => new Set(columns).size === columns.length, 'expected each column once'),
  timestamp: identifier,
  ttl,
  ttlColumn: identifier.optional(),
  staleness: qualifiedName.optional(),
  schedule: options({ cron, zone: zone.default('UTC') }).optional(),
  keys: options({ table: qualifiedName, column: identifier, active: identifier.optional() }).optional(),
  keyPattern: patternText.optional(),
  normalise: z.enum(['upper', 'lower']).optional(),
  gate: qualifiedName.optional(),
  gateOpens: qualifiedName.optional(),
  priority: options({ background: z.int().min(0).max(million), uiThreshold: z.int().min(1).max(million) }).optional(),
  dependsOn: z
    .array(z.union([definedName, z.custom<{ name: string }>(isNamed).transform(({ name }) => name)]))
    .max(16)
    .default([]),
  estimatedBytes: bytes.refine((count) => count <= 1e15, 'expected at most 1000TB').default(0),
  sourceTimestamp: identifier.optional(),
  maxSourceAge: ttl.optional(),
  maxRetries: z.int().min(0).max(100).default(3),
  maxRun: durationBetween('1ms', '30d').default(300_000),
  visibility: z.enum(['shared', 'rls']).default('shared'),
  evictAfter: durationBetween('1h', '3660d').optional(),
  row: aSchema.optional(),
  schema: aSchema.optional(),
  ...fetching,
}).check(({ value: { schedule, keys, keyPattern, gate, gateOpens }, issues, value }) => {
  const refuse = (path: string, message: string): void =>
    void issues.push({ code: 'custom', input: value, path: [path], message });
  if (schedule && !keys) refuse('keys', 'expected the table of all keys, over which the schedule walks');
  if (keys && keyPattern !== undefined) refuse('keyPattern', 'expected keys or keyPattern, not both');
  if (schedule && value.evictAfter !== undefined)
    refuse('evictAfter', 'expected no schedule beside it, which would fetch again what was evicted');
  if (gateOpens !== undefined && gate === undefined) refuse('gate', 'expected a gate, because there is a gateOpens');
  const together = ['request', 'schema', 'rows'] as const;
  const missing = together.find((name) => value[name] === undefined);
  const given = [...together, 'sanity' as const].find((name) => value[name] !== undefined);
  if (missing && given) refuse(missing, `expected request, schema and rows together, because there is ${given}`);
  const { key, timestamp, sourceTimestamp } = value;
  if (sourceTimestamp !== undefined && [...key, timestamp].includes(sourceTimestamp))
    refuse('sourceTimestamp', 'expected a column that is neither the timestamp nor of the key');
}) satisfies z.ZodType<unknown, DataTypeDefinition>;

/** A data type as the program uses it: times in milliseconds, sizes in bytes, its source by name. */
export type DataType = z.output<typeof dataTypeSchema>;

/** A data type as it was defined: clients know it by its name, and its rows by their schema. */
export type DefinedDataType<
  Name extends string,
  Row extends RowSchema,
  Needs extends Dependencies = [],
> = DataTypeDefinition & {
  readonly name: Name;
  readonly row?: Row | undefined;
  /** For the compiler alone: the names in dependsOn. */
  readonly '~needs'?: Extract<Needs[number], string>;
};

/** Does nothing but give the editor the types; what is wrong is said when the configuration is loaded. */
export function defineDataType<
  const Name extends string,
  Answer extends RowSchema = RowSchema,
  Row extends RowSchema = RowSchema,
  Written extends RowOf<Row> = RowOf<Row>,
  const Needs extends Dependencies = [],
>(type: DataTypeDefinition<Answer, Row, Written, Needs> & { readonly name: Name }): DefinedDataType<Name, Row, Needs> {
  return type;
}

function isNamed(source: unknown): boolean {
  return typeof source === 'object' && source !== null && 'name' in source && typeof source.name === 'string';
}
