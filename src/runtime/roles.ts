import type { Hono } from 'hono';
import type { DevSupport, ResolvedConfig, Settings } from '../config/index.ts';
import { consoleRoutes, devPage, jobRoutes, type Status } from '../console/index.ts';
import type { Database } from '../database/index.ts';
import type { Events } from '../events/index.ts';
import { Gateway } from '../gateway/index.ts';
import type { Mount } from '../http/index.ts';
import type { Service } from '../lifecycle/index.ts';
import { Planner, sweepJob } from '../planner/index.ts';
import { Scheduler, troubledJobs } from '../schedule/index.ts';
import { shared, type Overview } from '../watch/index.ts';
import { Worker } from '../worker/index.ts';
import type { Role } from './role-names.ts';

/** What a role gets from its process. */
export interface RoleContext {
  readonly database: Database;
  readonly url: string;
  /** A connection on which LISTEN works. */
  readonly listenUrl: string | undefined;
  readonly events: Events;
  readonly config: ResolvedConfig;
  /** The data types that a worker is limited to. */
  readonly types: readonly string[] | undefined;
  readonly status: () => Promise<Status>;
  readonly overview: () => Promise<Overview | undefined>;
  /** The configuration's development page. */
  readonly page: DevSupport['page'];
}

/** The parts of a role: a service, routes of the HTTP server, a mount with its own authentication. */
export interface RoleParts {
  readonly service?: Service;
  readonly routes?: (app: Hono) => void;
  readonly mount?: Mount;
}

const limitsOf = ({ checkTimeout, lockTimeout }: Settings) => ({ statementMs: checkTimeout, lockMs: lockTimeout });

/** Creates the parts of each role. */
const roles: Readonly<Record<Role, (context: RoleContext) => RoleParts>> = {
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
    return { service: gateway, mount: gateway.mount };
  },
  console: ({ status, overview, database: db, events, page, config: { settings } }) => ({
    ...(page && { mount: devPage(page, settings.host) }),
    routes: (app) => {
      consoleRoutes(app, { overview, jobs: shared(() => troubledJobs(db)), status });
      jobRoutes(app, { db, events });
    },
  }),
};

export function createRole(role: Role, context: RoleContext): RoleParts {
  return roles[role](context);
}
