import { z } from 'zod';
import { options, qualifiedName } from './definition.ts';
import { durationBetween, type Duration } from './duration.ts';
import { cron, zone } from './schedule.ts';

/** What a job says of its end. */
export interface JobResult {
  readonly success: boolean;
  readonly message: string;
  readonly details?: unknown;
}

/** What a handler gets. */
export interface JobContext<Params = Readonly<Record<string, unknown>>> {
  readonly job: string;
  /** The time for which it was due; null if it was triggered by hand. */
  readonly slot: Date | null;
  /** 1, or more where it failed before. */
  readonly attempt: number;
  /** Aborted when its time is over, when it is cancelled, or when the process stops. */
  readonly signal: AbortSignal;
  readonly params: Params;
  /** Puts a line into the log. */
  readonly log: (message: string, details?: Readonly<Record<string, unknown>>) => void;
  /** The database, with the rights of the process. */
  readonly db: JobDatabase;
}

interface JobDatabase {
  query<Row extends object = Record<string, unknown>>(statement: string, values?: readonly unknown[]): Promise<Row[]>;
}

export type JobHandler<Params = Readonly<Record<string, unknown>>> = (
  context: JobContext<Params>,
) => JobResult | Promise<JobResult>;

type Times = Duration | readonly [Duration, Duration];

/** What runs at set times: an SQL function, or a handler of this program. */
export interface JobDefinition<Params extends object = Readonly<Record<string, unknown>>> {
  /** Letters, digits, `_`, `.` and `-`, starting with a letter or digit. */
  readonly name: string;
  /** Shown by `pgfresh jobs`. Default: none. */
  readonly description?: string | undefined;
  /**
   * An SQL function `()` or `(jsonb)` that returns `jsonb`. In `public`, unless written as `schema.function`. Either
   * this or `handler`.
   */
  readonly function?: string | undefined;
  /** A function of your program that does the work. Either this or `function`. */
  readonly handler?: JobHandler<Params> | undefined;
  /** A cron expression of five fields, or a word such as `@daily`. Either this or `every`. */
  readonly schedule?: string | undefined;
  /** The time zone of the schedule. Default: UTC. */
  readonly timezone?: string | undefined;
  /** The time between two runs, or a range such as `["10m", "15m"]`. Either this or `schedule`. */
  readonly every?: Times | undefined;
  /** The same after a failed run. Default: `every`. */
  readonly afterFailure?: Times | undefined;
  /** Whether it runs. Default: true. */
  readonly enabled?: boolean | undefined;
  /** Passed to the function or the handler. Default: {}. */
  readonly params?: Params | undefined;
  /** Time limit of a run, up to 1d. Default: 30s. */
  readonly timeout?: Duration | undefined;
  /** How often a failed run is retried. Default: 0. */
  readonly retries?: number | undefined;
  /** The wait before the first retry; it doubles with each one. Default: 15s. */
  readonly retryBase?: Duration | undefined;
  /** Which missed slots run when a scheduler is back: the newest (`once`), none (`skip`) or `all`. Default: once. */
  readonly catchUp?: 'once' | 'skip' | 'all' | undefined;
  /** How far back missed slots are considered. Default: without limit for `once`, a day for `all`. */
  readonly catchUpWindow?: Duration | undefined;
  /** Maximum number of missed slots that run. Default: 100. */
  readonly catchUpMax?: number | undefined;
  /** What happens to a slot that comes while a run is under way. Default: skip. */
  readonly overlap?: 'skip' | 'queue' | undefined;
  /** Delays a slot by up to this long; the delay of a slot is always the same. Default: none. */
  readonly jitter?: Duration | undefined;
  /** Dates in the time zone on which it does not run, such as `2026-12-24`. Default: none. */
  readonly blackoutDates?: readonly string[] | undefined;
  /** The role that runs an SQL function. Default: the role that migrates. */
  readonly owner?: string | undefined;
}

const longTime = durationBetween('1s', '366d');
const times = z
  .union([z.tuple([longTime, longTime]), longTime.transform((time): [number, number] => [time, time])])
  .refine(([from, to]) => from <= to, 'expected the shorter time first');

export const jobSchema = options({
  name: z
    .string()
    .regex(
      /^[A-Za-z0-9][\w.-]{0,99}$/,
      'expected letters, digits, _, . and -, at most 100, with a letter or digit first',
    ),
  description: z.string().max(1_000).optional(),
  function: qualifiedName.optional(),
  handler: z.custom<JobHandler>((value) => typeof value === 'function', 'expected a function').optional(),
  schedule: cron.optional(),
  timezone: zone.default('UTC'),
  every: times.optional(),
  afterFailure: times.optional(),
  enabled: z.boolean().default(true),
  params: z.record(z.string(), z.json()).default({}),
  timeout: durationBetween('1ms', '1d').default(30_000),
  retries: z.int().min(0).max(100).default(0),
  retryBase: durationBetween('1s', '1d').default(15_000),
  catchUp: z.enum(['once', 'skip', 'all']).default('once'),
  catchUpWindow: longTime.optional(),
  catchUpMax: z.int().min(1).max(10_000).default(100),
  overlap: z.enum(['skip', 'queue']).default('skip'),
  jitter: durationBetween('1ms', '1d').optional(),
  blackoutDates: z.array(z.iso.date('expected a date such as "2026-12-24"')).max(1_000).default([]),
  owner: z.string().min(1).max(63).optional(),
}).check(({ value, issues }) => {
  const refuse = (path: string, message: string): void =>
    void issues.push({ code: 'custom', input: value, path: [path], message });
  const either = (one: 'function' | 'schedule', other: 'handler' | 'every'): void => {
    if ((value[one] === undefined) === (value[other] === undefined))
      refuse(one, `expected ${one} or ${other}, and ${value[one] === undefined ? 'one of them' : 'not both'}`);
  };
  either('function', 'handler');
  either('schedule', 'every');
  if (value.afterFailure && !value.every) refuse('afterFailure', 'expected every, because there is an afterFailure');
});

/** A job as the program uses it: times in milliseconds. */
export type Job = z.output<typeof jobSchema>;

/** Does nothing but give the editor the types; what is wrong is said when the configuration is loaded. */
export function defineJob<Params extends object = Readonly<Record<string, unknown>>>(
  job: JobDefinition<Params>,
): JobDefinition {
  return job as unknown as JobDefinition;
}
