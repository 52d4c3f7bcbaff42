import { z } from 'zod';
import { identifier, options } from './definition.ts';
import type { HttpRequest } from './http-request.ts';

/** What `request` knows besides the key. */
export interface RequestContext {
  readonly key: string;
  /** The key's columns; one, unless the key has several. */
  readonly keyParts: readonly string[];
  /** What was given when the job was queued. */
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly dataType: string;
  /** The database's time. */
  readonly now: Date;
  /** Aborted when the worker has to give up. */
  readonly signal: AbortSignal;
}

/** What `rows` and `sanity` know besides the answer. */
export interface AnswerContext extends RequestContext {
  /** When the answer was fetched, by the database's time; earlier than now if it comes from the cache. */
  readonly fetchedAt: Date;
  readonly status: number;
  readonly headers: Headers;
}

/** Between which values a column makes sense. A null is never out of bounds. */
export interface Bounds {
  readonly min?: number | undefined;
  readonly max?: number | undefined;
  /** More than this, as in `above: 0`. */
  readonly above?: number | undefined;
  readonly below?: number | undefined;
}

/** Writes a row only where this column of it is greater than what is there. */
export interface MergeWhenGreater<Column extends string = string> {
  readonly mergeWhenGreater: Column;
}

/** A write mode: a row is written only where this column of it is greater than what is there. */
export function mergeWhenGreater<const Column extends string>(column: Column): MergeWhenGreater<Column> {
  return { mergeWhenGreater: column };
}

const aFunction = <F>(expected: string) => z.custom<F>((value) => typeof value === 'function', expected);

type Request = (key: string, context: RequestContext) => HttpRequest | Promise<HttpRequest>;
type Rows = (answer: unknown, context: AnswerContext) => object | readonly object[] | null | undefined;
type Sanity = (row: object, context: AnswerContext) => string | undefined;

const number = z.number().optional();
const bounds = options({ min: number, max: number, above: number, below: number }).refine(
  (given) => Object.values(given).some((value) => value !== undefined),
  'expected at least one of min, max, above and below',
);

/** The options of a data type that say how it is fetched and written. */
export const fetching = {
  request: aFunction<Request>('expected a function (key, context) that returns a request').optional(),
  rows: aFunction<Rows>('expected a function (answer, context) that returns rows').optional(),
  sanity: z
    .union([
      aFunction<Sanity>('expected bounds by column, such as { price: { above: 0 } }, or a function (row, context)'),
      z.record(identifier, bounds),
    ])
    .optional(),
  write: z
    .union(
      [z.enum(['merge', 'replace']), options({ mergeWhenGreater: identifier })],
      'expected "merge", "replace" or mergeWhenGreater("column")',
    )
    .default('merge'),
  nulls: z.enum(['write', 'keep']).default('write'),
  emptyStatus: z.array(z.int().min(200).max(499)).default([204]),
  contentType: z.string().min(1).optional(),
};
