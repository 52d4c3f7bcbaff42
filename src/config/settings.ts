import { z } from 'zod';
import { durationBetween } from './duration.ts';

interface Setting {
  /** One line for `--help` and for the docs. */
  readonly about: string;
  readonly env: string;
  /** In commander's notation. */
  readonly flag: string;
  readonly schema: z.ZodType;
  readonly default: unknown;
  /** Never shown, wherever it came from. */
  readonly secret?: true;
}

const words = z.union([
  z.array(z.string().min(1)),
  z.string().transform((text) =>
    text
      .split(',')
      .map((word) => word.trim())
      .filter(Boolean),
  ),
]);
const wholeNumber = (low: number, high: number) =>
  z
    .union([z.number(), z.string().regex(/^\d+$/, `expected a whole number from ${low} to ${high}`).transform(Number)])
    .pipe(z.int().min(low).max(high));

/** Every setting of pgfresh, once: its name in `pgfresh.config.ts`, its flag, its environment variable. */
export const settings = {
  databaseUrl: {
    about: 'PostgreSQL to use (15 or newer); without it, an embedded one is started',
    env: 'DATABASE_URL',
    flag: '--database-url <url>',
    schema: z.string().min(1).optional(),
    default: undefined,
    secret: true,
  },
  listenUrl: {
    about: 'PostgreSQL to listen on for changes, where databaseUrl is a transaction pooler; without it they are polled',
    env: 'PGFRESH_LISTEN_URL',
    flag: '--listen-url <url>',
    schema: z.string().min(1).optional(),
    default: undefined,
    secret: true,
  },
  dataDir: {
    about: 'folder of the embedded database and of generated secrets',
    env: 'PGFRESH_DATA_DIR',
    flag: '--data-dir <folder>',
    schema: z.string().min(1),
    default: '.pgfresh',
  },
  host: {
    about: 'address to listen on',
    env: 'PGFRESH_HOST',
    flag: '--host <address>',
    schema: z.string().min(1),
    default: '127.0.0.1',
  },
  port: {
    about: 'port to listen on; without it 4400, or the next free one',
    env: 'PGFRESH_PORT',
    flag: '--port <number>',
    schema: wholeNumber(0, 65_535).optional(),
    default: undefined,
  },
  allowedHosts: {
    about: 'further host names of the server, separated by commas',
    env: 'PGFRESH_ALLOWED_HOSTS',
    flag: '--allowed-hosts <names>',
    schema: words,
    default: [],
  },
  token: {
    about: 'bearer token for everything that writes; without it, one is generated into the data folder',
    env: 'PGFRESH_TOKEN',
    flag: '--token <secret>',
    schema: z.string().min(16, 'expected 16 characters or more').optional(),
    default: undefined,
    secret: true,
  },
  logLevel: {
    about: 'minimum log level: debug, info, warn, error or silent',
    env: 'PGFRESH_LOG_LEVEL',
    flag: '--log-level <level>',
    schema: z.enum(['debug', 'info', 'warn', 'error', 'silent']),
    default: 'info',
  },
  poolSize: {
    about: 'maximum database connections of this process',
    env: 'PGFRESH_POOL_SIZE',
    flag: '--pool-size <number>',
    schema: wholeNumber(1, 1_000),
    default: 10,
  },
  tickInterval: {
    about: 'how often the planner looks at what is due',
    env: 'PGFRESH_TICK_INTERVAL',
    flag: '--tick-interval <time>',
    schema: durationBetween('10ms', '1h'),
    default: '1s',
  },
  checkTimeout: {
    about: 'time limit of a statement on tables and functions of a data type; two timeouts quarantine the type',
    env: 'PGFRESH_CHECK_TIMEOUT',
    flag: '--check-timeout <time>',
    schema: durationBetween('10ms', '1m'),
    default: '500ms',
  },
  lockTimeout: {
    about: 'how long a planner or gateway waits for a lock on the table of a data type',
    env: 'PGFRESH_LOCK_TIMEOUT',
    flag: '--lock-timeout <time>',
    schema: durationBetween('10ms', '1m'),
    default: '100ms',
  },
  workerName: {
    about: 'name of this process in the queue, its history and job runs; without it, host and process id',
    env: 'PGFRESH_WORKER_NAME',
    flag: '--worker-name <name>',
    schema: z
      .string()
      .regex(/^\P{Cc}{1,200}$/u, 'expected 1 to 200 characters and no control characters')
      .optional(),
    default: undefined,
  },
  workerConcurrency: {
    about: 'maximum concurrent fetches per worker',
    env: 'PGFRESH_WORKER_CONCURRENCY',
    flag: '--worker-concurrency <number>',
    schema: wholeNumber(1, 10_000),
    default: 100,
  },
  schedulerConcurrency: {
    about: 'maximum concurrent scheduled jobs per process, each with a connection',
    env: 'PGFRESH_SCHEDULER_CONCURRENCY',
    flag: '--scheduler-concurrency <number>',
    schema: wholeNumber(1, 1_000),
    default: 10,
  },
  drainTimeout: {
    about: 'how long a stopping process may take to finish running work',
    env: 'PGFRESH_DRAIN_TIMEOUT',
    flag: '--drain-timeout <time>',
    schema: durationBetween('1ms', '1h'),
    default: '10s',
  },
  statementTimeout: {
    about: 'time after which PostgreSQL cancels a statement of pgfresh, migrations excepted',
    env: 'PGFRESH_STATEMENT_TIMEOUT',
    flag: '--statement-timeout <time>',
    schema: durationBetween('10ms', '1d'),
    default: '30s',
  },
} as const satisfies Record<string, Setting>;

export type SettingName = keyof typeof settings;
export const settingNames = Object.keys(settings) as SettingName[];

/** The settings as the program uses them. */
export type Settings = { [Name in SettingName]: z.output<(typeof settings)[Name]['schema']> };

/** The settings as `pgfresh.config.ts` may say them. */
export type ConfigSettings = { [Name in SettingName]?: z.input<(typeof settings)[Name]['schema']> };
