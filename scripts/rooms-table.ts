/**
 * The rooms. A room is a folder of `src/`, imported only through its `index.ts`.
 * `mayImport` is the whole list, besides the types of `config`, which every room may import. `npm run lint`
 * checks every import against it.
 */
interface Room {
  readonly owns: string;
  readonly mayImport: readonly string[];
}

/** What every room above the ground floor stands on. */
export const ground = ['errors', 'events', 'lifecycle', 'database'] as const;

export const rooms: Readonly<Record<string, Room>> = {
  errors: { owns: 'the coded error table', mayImport: [] },
  events: { owns: 'the one union of everything that happens, and its subscription', mayImport: ['errors'] },
  lifecycle: {
    owns: 'the start and stop contract, the one loop, waits with a limit, the halves of a failing batch, and the failpoints of tests',
    mayImport: [],
  },
  config: { owns: 'the definitions a user writes, and loading them from pgfresh.config.ts', mayImport: ['errors'] },
  database: {
    owns: 'pool, transactions, migrations, roles, the embedded PostgreSQL and SQLSTATE classes',
    mayImport: ['errors', 'events', 'lifecycle', 'config'],
  },
  process: {
    owns: 'a process as the database sees it: its number, its lease, and what it holds',
    mayImport: ['errors', 'events', 'lifecycle', 'database'],
  },
  registry: {
    owns: 'the data types as rows: sync from the configuration, identifier and schema checks',
    mayImport: [...ground, 'config'],
  },
  demand: {
    owns: 'who is looking at what through this process, written under a lease',
    mayImport: [...ground],
  },
  queue: {
    owns: 'the life of a job: enqueue, claim, heartbeat, complete, fail, recover, history',
    mayImport: [...ground, 'process'],
  },
  planner: {
    owns: 'what is due: the loop of the tick, and the sweep',
    mayImport: [...ground],
  },
  sources: {
    owns: 'rate, byte ledger, breaker, API keys, response cache and the one HTTP client',
    mayImport: [...ground, 'config'],
  },
  refresh: {
    owns: 'one job from request to commit',
    mayImport: [...ground, 'config', 'sources', 'queue', 'registry'],
  },
  worker: {
    owns: 'the loop that joins queue, sources and refresh',
    mayImport: [...ground, 'process', 'refresh', 'queue', 'sources'],
  },
  schedule: {
    owns: 'cron, time zones, slots, catch-up, overlap, leases and run history',
    mayImport: [...ground, 'config', 'process'],
  },
  changes: {
    owns: 'the outbox of changes, the bus between gateways, and the newest state of every watched pair',
    mayImport: [...ground, 'planner'],
  },
  gateway: {
    owns: 'WebSocket and SSE: authentication, limits, snapshot, then stream',
    mayImport: [...ground, 'changes', 'demand', 'planner', 'http'],
  },
  watch: {
    owns: 'the log, metrics, health, warnings, the overview and the checks of "pgfresh check"',
    mayImport: [...ground, 'config'],
  },
  http: {
    owns: 'the one HTTP server, to which other rooms bring their routes',
    mayImport: [...ground, 'config', 'watch'],
  },
  console: {
    owns: 'the status page, the overview and the jobs over HTTP',
    mayImport: [...ground, 'config', 'schedule', 'watch', 'http'],
  },
  runtime: {
    owns: 'the roles of a process, started and stopped together: start(), for you and for the CLI',
    mayImport: [
      ...ground,
      'config',
      'registry',
      'planner',
      'worker',
      'schedule',
      'gateway',
      'watch',
      'http',
      'console',
    ],
  },
  cli: {
    owns: 'the pgfresh command: what it reads, prints and does on signals',
    mayImport: [
      ...ground,
      'config',
      'registry',
      'planner',
      'sources',
      'refresh',
      'schedule',
      'gateway',
      'watch',
      'runtime',
    ],
  },
};
