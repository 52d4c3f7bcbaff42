import type { Hono } from 'hono';
import type { Settings } from '../config/index.ts';
import { consoleRoutes, type Status } from '../console/index.ts';
import type { Database } from '../database/index.ts';
import type { Events } from '../events/index.ts';
import type { Service } from '../lifecycle/index.ts';
import { Planner } from '../planner/index.ts';

/** What a role needs of the process that it runs in. */
export interface RoleContext {
  readonly database: Database;
  readonly events: Events;
  readonly settings: Settings;
  readonly status: () => Promise<Status>;
}

/** What a role brings: something that runs, pages for the HTTP server, or both. */
interface Brought {
  readonly service?: Service;
  readonly routes?: (app: Hono) => void;
}

/** The roles of a process, each with what it brings. */
const roles = {
  planner: ({ database: db, events, settings }) => ({
    service: new Planner({ db, events, tickMs: settings.tickInterval, sweepMs: settings.sweepInterval }),
  }),
  console: ({ status }) => ({ routes: (app) => consoleRoutes(app, status) }),
} as const satisfies Record<string, (context: RoleContext) => Brought>;

export type Role = keyof typeof roles;

export const roleNames = Object.keys(roles) as Role[];

export function bringRole(role: Role, context: RoleContext): Brought {
  return roles[role](context);
}
