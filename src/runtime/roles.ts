import type { Hono } from 'hono';
import type { DevSupport, ResolvedConfig, Settings } from '../config/index.ts';
import { consoleRoutes, devDoor, jobRoutes, type Status } from '../console/index.ts';
import type { Database } from '../database/index.ts';
import type { Events } from '../events/index.ts';
import { Gateway } from '../gateway/index.ts';
import type { Door } from '../http/index.ts';
import type { Service } from '../lifecycle/index.ts';
import { Planner, sweepJob } from '../planner/index.ts';
import { Scheduler, troubledJobs } from '../schedule/index.ts';
import { shared, type Overview } from '../watch/index.ts';
import { Worker } from '../worker/index.ts';
import type { Role } from './role-names.ts';

/** What a role needs of the process that it runs in. */
export interface RoleContext {
  readonly database: Database;
  readonly url: string;
  /** Where LISTEN works. */
  readonly listenUrl: string | undefined;
  readonly events: Events;
  readonly config: ResolvedConfig;
  /** The data types that a worker is limited to. */
  readonly types: readonly string[] | undefined;
  readonly status: () => Promise<Status>;
  readonly overview: () => Promise<Overview | undefined>;
  /** What the configuration has at `/` for development. */
  readonly page: DevSupport['page'];
}

/** What a role brings: something that runs, pages for the HTTP server, a door of it, or several of these. */
export interface Brought {
  readonly service?: Service;
  readonly routes?: (app: Hono) => void;
  readonly door?: Door;
}

const limitsOf = ({ checkTimeout, lockTimeout }: Settings) => ({ statementMs: checkTimeout, lockMs: lockTimeout });

/** The roles of a process, each with what it brings. */
const roles: Readonly<Record<Role, (context: RoleContext) => Brought>> = {
  planner: ({ database: db, events, config: { settings } }) => ({
    service: new Planner({ db, events, tickMs: settings.tickInterval, limits: limitsOf(settings) }),
  }),
  worker: ({ database: db, url, listenUrl, events, types, config: { settings, sources, dataTypes = [] } }) => ({
    service: new Worker({
      db,
      url,
      listenUrl,
      events,
      sources,
      dataTypes,
      types,
      concurrency: settings.workerConcurrency,
      drainMs: settings.drainTimeout,
      workerName: settings.workerName,
    }),
  }),
  scheduler: ({ database: db, url, listenUrl, events, config: { settings, jobs = [] } }) => ({
    service: new Scheduler({
      db,
      url,
      listenUrl,
      events,
      handlers: new Map(jobs.flatMap(({ name, handler }) => (handler ? [[name, handler]] : []))),
      ownJobs: { sweep: sweepJob({ db, events, limits: limitsOf(settings) }) },
      concurrency: settings.schedulerConcurrency,
      statementTimeoutMs: settings.statementTimeout,
      drainMs: settings.drainTimeout,
      workerName: settings.workerName,
    }),
  }),
  gateway: ({ database: db, url, listenUrl, events, config }) => {
    const { lockTimeout: lockTimeoutMs, checkTimeout: statementTimeoutMs } = config.settings;
    const typeLimits = { lockTimeoutMs, statementTimeoutMs };
    const gateway = new Gateway({ db, url, listenUrl, events, settings: config.gateway, typeLimits });
    return { service: gateway, door: gateway.door };
  },
  console: ({ status, overview, database: db, events, page, config: { settings } }) => ({
    ...(page && { door: devDoor(page, settings.host) }),
    routes: (app) => {
      consoleRoutes(app, { overview, jobs: shared(() => troubledJobs(db)), status });
      jobRoutes(app, { db, events });
    },
  }),
};

export function bringRole(role: Role, context: RoleContext): Brought {
  return roles[role](context);
}
