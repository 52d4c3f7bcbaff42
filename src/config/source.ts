import { z } from 'zod';
import { bytes, type Bytes } from './bytes.ts';
import { clientOptions, type ClientDefinition } from './client-options.ts';
import { definedName, options } from './definition.ts';
import { durationBetween, type Duration } from './duration.ts';

/** A provider: who is called, how, and within which limits. */
export interface SourceDefinition extends ClientDefinition {
  readonly name: string;
  /** Whether it may be called. Left out, it is what the database says, so that somebody can switch it off there. */
  readonly enabled?: boolean | undefined;
  /** Calls in any minute with each API key, at most 100,000; no limit if it is left out. */
  readonly rateLimitPerMinute?: number | undefined;
  /** Bytes in any `quotaWindow`, as a number or as "20GB"; no limit if it is left out. */
  readonly quotaBytes?: Bytes | undefined;
  /** From 1h to 366d; 30 days if it is left out. */
  readonly quotaWindow?: Duration | undefined;
  /** The share of the quota that is ever used, above 0 and at most 1; 0.95 if it is left out. */
  readonly quotaBuffer?: number | undefined;
  /** The share of the rate that is kept for what people look at, from 0 and below 1; 0.2 if it is left out. */
  readonly viewedShare?: number | undefined;
  /** How many of its jobs may run at once; no limit if it is left out. */
  readonly concurrency?: number | undefined;
  /** When it is left alone because it fails, and for how long. Then one job tries whether it is back. */
  readonly breaker?:
    | {
        /** So many failures in a row, or twice as many retries within `window`; from 1 to 100, 5 if it is left out. */
        readonly failures?: number | undefined;
        /** From 1s to 1d; 10 minutes if it is left out. */
        readonly window?: Duration | undefined;
        /** From 1s to 1d; 5 minutes if it is left out. */
        readonly pause?: Duration | undefined;
      }
    | undefined;
  /** Whether jobs of one key, of whatever data types, run one after the other; false if it is left out. */
  readonly oneAtATimeAKey?: boolean | undefined;
}

export const sourceSchema = options({
  name: definedName,
  enabled: z.boolean().optional(),
  rateLimitPerMinute: z.int32().min(1).max(100_000).optional(),
  quotaBytes: bytes.refine((count) => count > 0, 'expected more than 0 bytes').optional(),
  quotaWindow: durationBetween('1h', '366d').default(30 * 86_400_000),
  quotaBuffer: z.number().gt(0).max(1).default(0.95),
  viewedShare: z.number().min(0).lt(1).default(0.2),
  concurrency: z.int32().min(1).optional(),
  breaker: options({
    failures: z.int32().min(1).max(100).default(5),
    window: durationBetween('1s', '1d').default(600_000),
    pause: durationBetween('1s', '1d').default(300_000),
  }).prefault({}),
  oneAtATimeAKey: z.boolean().default(false),
  ...clientOptions,
}).check(({ value, issues }) => {
  if (value.apiKeys.length === 0 || value.authorize || value.token) return;
  const message = 'expected a function that puts the API key into a request';
  issues.push({ code: 'custom', input: value, path: ['authorize'], message });
}) satisfies z.ZodType<unknown, SourceDefinition>;

/** A source as the program uses it: times in milliseconds, sizes in bytes. */
export type Source = z.output<typeof sourceSchema>;

/** Does nothing but give the editor the types; what is wrong is said when the configuration is loaded. */
export function defineSource(source: SourceDefinition): SourceDefinition {
  return source;
}
