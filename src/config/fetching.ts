import { z } from 'zod';
import { identifier, options } from './definition.ts';
import { durationBetween, type Duration } from './duration.ts';
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

/** How the rows of an answer are written. */
export type Write<Column extends string = string> =
  | 'merge'
  | 'replace'
  | {
      /** Rows of the key that the answer lacks stay. */
      readonly mode: 'merge';
      /** A row is written only where this column of it is greater than what is there. */
      readonly ifGreater?: Column | undefined;
      readonly maxDeletes?: number | undefined;
    }
  | {
      /** Rows of the key that the answer lacks are deleted. */
      readonly mode: 'replace';
      /**
       * The share of rows that may go at once: of a key's rows by one answer, and of all rows within a day, or within the
       * ttl where that is longer. 0.25 if it is left out; 1 for no limit. An answer beyond it is refused as `suspicious`.
       */
      readonly maxDeletes?: number | undefined;
    };

/** What an answer means that has nothing for its key. */
export interface Empty {
  /** HTTP statuses that mean there is nothing. Default: 204. */
  readonly status?: readonly number[] | undefined;
  /** How long that holds. Default: the TTL of the type. */
  readonly ttl?: Duration | undefined;
  /** Whether existing rows are kept or deleted. Default: delete where `write` is `replace`, else keep. */
  readonly rows?: 'keep' | 'delete' | undefined;
}

const aFunction = <F>(expected: string) => z.custom<F>((value) => typeof value === 'function', expected);

type Request = (key: string, context: RequestContext) => HttpRequest | Promise<HttpRequest>;
type Rows = (answer: unknown, context: AnswerContext) => object | readonly object[] | null | undefined;
type Sanity = (row: object, context: AnswerContext) => string | undefined;

/** How rows are written, with what was left out. */
export interface WriteRule {
  readonly mode: 'merge' | 'replace';
  readonly ifGreater?: string | undefined;
  readonly maxDeletes: number;
}

const mode = z.enum(['merge', 'replace']);
const share = 'expected a share from 0 to 1';
const maxDeletes = z.number(share).min(0, share).max(1, share).default(0.25);
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
      [mode.transform((given) => ({ mode: given })), options({ mode, ifGreater: identifier.optional(), maxDeletes })],
      {
        error: ({ input }) =>
          typeof input === 'object' ? undefined : 'expected "merge", "replace" or an object with mode',
      },
    )
    .transform((given): WriteRule => ({ maxDeletes: 0.25, ...given }))
    .refine((given) => given.mode === 'merge' || given.ifGreater === undefined, 'expected ifGreater with merge only')
    .prefault('merge'),
  nulls: z.enum(['write', 'keep']).default('write'),
  empty: options({
    status: z.array(z.int().min(200).max(499)).default([204]),
    ttl: durationBetween('1ms', '3660d').optional(),
    rows: z.enum(['keep', 'delete']).optional(),
  }).prefault({}),
  contentType: z.string().min(1).optional(),
};
