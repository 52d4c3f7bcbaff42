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
  readonly name: string;
  /** A source of this configuration, or the name of one that the database knows. */
  readonly source: string | SourceDefinition;
  /** Under which name workers find what fetches it; its own name if it is left out. */
  readonly fetcher?: string | undefined;
  /** The table, with its schema and a dot before it if that is not public. */
  readonly table: string;
  /** The column or columns of the key. */
  readonly key: ColumnOf<Row, NoInfer<Written>> | readonly ColumnOf<Row, NoInfer<Written>>[];
  /** The column that says when a row was fetched, a timestamptz. */
  readonly timestamp: string;
  /** How old is too old. There is no default, because nobody else can know it. */
  readonly ttl: Duration;
  /** A column that says it for single rows, as an interval or in whole minutes. */
  readonly ttlColumn?: string | undefined;
  /** An SQL function (timestamptz, interval) or (timestamptz, int minutes) that returns whether a row is stale. */
  readonly staleness?: string | undefined;
  /** Refreshes all keys at these times, in the background; on demand then only what is missing. Needs `keys`. */
  readonly schedule?: { readonly cron: string; readonly zone?: string | undefined } | undefined;
  /** The table that has all keys; `active` is a boolean column of it. */
  readonly keys?: { readonly table: string; readonly column: string; readonly active?: string | undefined } | undefined;
  /** What keys look like, if no table has them. */
  readonly keyPattern?: RegExp | string | undefined;
  /** In which case keys are written. Only the letters A to Z are changed. */
  readonly normalise?: 'upper' | 'lower' | undefined;
  /** An SQL function (key text, data_type text) that returns whether what is there may be refreshed now. */
  readonly gate?: string | undefined;
  /** An SQL function (key text, data_type text) that returns when a closed gate opens. */
  readonly gateOpens?: string | undefined;
  /** Below `uiThreshold` viewers the priority is `background`, and from there on the number of viewers. */
  readonly priority?: { readonly background: number; readonly uiThreshold: number } | undefined;
  /**
   * Data types whose row of the same key must be there first: data types of this configuration or their names, or
   * `{ name }` of one that only the database knows.
   */
  readonly dependsOn?: Needs | undefined;
  /** What an answer weighs, until real ones have told. */
  readonly estimatedBytes?: Bytes | undefined;
  /** The column that says how old the data is at the provider; `rows` fills it. What is older never replaces what is newer. */
  readonly sourceTimestamp?: ColumnOf<Row, NoInfer<Written>> | undefined;
  /** How old the data may be at the provider, by `sourceTimestamp`, to count as fresh; as old as it likes if it is left out. */
  readonly maxSourceAge?: Duration | undefined;
  /** 3 if it is left out. */
  readonly maxRetries?: number | undefined;
  /** How long a job may go without progress; 5 minutes if it is left out. */
  readonly maxRun?: Duration | undefined;
  /** Whether all viewers see the same rows, or each what row security shows them; shared if it is left out. */
  readonly visibility?: 'shared' | 'rls' | undefined;
  /** A schema (zod, or any that follows standardschema.dev) of a row as it is written; `pgfresh check` compares it with the table. */
  readonly row?: Row | undefined;
  /** A schema of the answer. What it refuses is never written. */
  readonly schema?: Answer | undefined;
  /** Describes the request for a key; the engine makes the call. */
  readonly request?: ((key: string, context: RequestContext) => HttpRequest | Promise<HttpRequest>) | undefined;
  /** The rows of a validated answer, each with its key as the provider says it. None means that there is nothing. */
  readonly rows?: Rows<Answer, Written>['rows'] | undefined;
  /** Bounds by column, or a function that says in a sentence what is wrong with a row. */
  readonly sanity?:
    | { readonly [Column in ColumnOf<Row, NoInfer<Written>>]?: Bounds }
    | Rows<Answer, NoInfer<Written>>['sanity']
    | undefined;
  /** Whether rows of the key that the answer lacks stay (`merge`, if it is left out) or go (`replace`). */
  readonly write?: Write<ColumnOf<Row, NoInfer<Written>>> | undefined;
  /** Whether a null is written, as it is if this is left out, or leaves what is there. */
  readonly nulls?: 'write' | 'keep' | undefined;
  /** Which answers mean that there is nothing for the key, for how long, and whether its rows go then. */
  readonly empty?: Empty | undefined;
  /** Deletes the rows of keys that nobody has viewed for so long; they stay if it is left out. */
  readonly evictAfter?: Duration | undefined;
  /** What the provider calls its JSON, if it does not have json in its name. */
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
