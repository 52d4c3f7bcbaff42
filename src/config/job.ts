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
  /** The time for which it was due; null if somebody triggered it. */
  readonly slot: Date | null;
  /** 1, or more where it failed before. */
  readonly attempt: number;
  /** Aborted when its time is over, when somebody cancels it, or when the process has to end. */
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
  readonly name: string;
  readonly description?: string | undefined;
  /** An SQL function () or (jsonb) that returns jsonb, with its schema and a dot before it if that is not public. */
  readonly function?: string | undefined;
  /** Or what does the work here. */
  readonly handler?: JobHandler<Params> | undefined;
  /** Five fields of cron, or a word such as @daily. */
  readonly schedule?: string | undefined;
  /** The name of a time zone; UTC if it is left out. */
  readonly timezone?: string | undefined;
  /** Or a time after the last run, from and to: ["10m", "15m"]. */
  readonly every?: Times | undefined;
  /** The same after a failure. */
  readonly afterFailure?: Times | undefined;
  /** True if it is left out. */
  readonly enabled?: boolean | undefined;
  readonly params?: Params | undefined;
  /** 30 seconds if it is left out. */
  readonly timeout?: Duration | undefined;
  /** How often a failed run is tried again; 0 if it is left out. */
  readonly retries?: number | undefined;
  /** The wait before the first of these, which doubles with each one; 15 seconds if it is left out. */
  readonly retryBase?: Duration | undefined;
  /** What is done about slots that came while no scheduler was up; `once` if it is left out. */
  readonly catchUp?: 'once' | 'skip' | 'all' | undefined;
  /** How far back that goes. Left out: `once` runs the newest slot however late, `all` goes back a day. */
  readonly catchUpWindow?: Duration | undefined;
  /** How many runs it may be; 100 if it is left out. */
  readonly catchUpMax?: number | undefined;
  /** What is done about a slot that comes while a run is under way; `skip` if it is left out. */
  readonly overlap?: 'skip' | 'queue' | undefined;
  /** At most so much later than the slot, the same for a slot every time. */
  readonly jitter?: Duration | undefined;
  /** Days of the time zone on which it does not run, such as "2026-12-24". */
  readonly blackoutDates?: readonly string[] | undefined;
  /** The role as which an SQL function runs; the one that syncs if it is left out. */
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
