import { z } from 'zod';
import { bytes, type Bytes } from './bytes.ts';
import { clientOptions, type ClientDefinition } from './client-options.ts';
import { definedName, options } from './definition.ts';
import { durationBetween, type Duration } from './duration.ts';

/** A provider: who is called, how, and within which limits. */
export interface SourceDefinition extends ClientDefinition {
  /** Lower-case letters, digits, `_` and `-`, starting with a letter. */
  readonly name: string;
  /** Whether it may be called. Default: the value in the database, where an operator may change it. */
  readonly enabled?: boolean | undefined;
  /** Maximum calls in any minute per API key, up to 100,000. Default: no limit. */
  readonly rateLimitPerMinute?: number | undefined;
  /** Maximum bytes in any `quotaWindow`. Default: no limit. */
  readonly quotaBytes?: Bytes | undefined;
  /** The window of the quota, from 1h to 366d. Default: 30d. */
  readonly quotaWindow?: Duration | undefined;
  /** The share of the quota that is used at most, above 0 and up to 1. Default: 0.95. */
  readonly quotaBuffer?: number | undefined;
  /** The share of the rate that is reserved for viewed pairs, from 0 to below 1. Default: 0.2. */
  readonly viewedShare?: number | undefined;
  /** Maximum concurrent jobs. Default: no limit. */
  readonly concurrency?: number | undefined;
  /** When a failing source is paused, and for how long. After the pause, one job tests it. */
  readonly breaker?:
    | {
        /** Opens after this many failures in a row, or twice as many retries within `window`; 1 to 100. Default: 5. */
        readonly failures?: number | undefined;
        /** The time in which retries are counted, from 1s to 1d. Default: 10m. */
        readonly window?: Duration | undefined;
        /** The pause, from 1s to 1d. Default: 5m. */
        readonly pause?: Duration | undefined;
      }
    | undefined;
  /** Whether jobs for the same key, of any data type, run one after another. Default: false. */
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
