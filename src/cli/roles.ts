import type { Hono } from 'hono';
import { consoleRoutes, type Status } from '../console/index.ts';

/** What a role needs of the process that it runs in. */
export interface RoleContext {
  readonly app: Hono;
  readonly status: () => Promise<Status>;
}

/** The roles of a process, each with what it brings. */
const roles = {
  console: ({ app, status }) => consoleRoutes(app, status),
} as const satisfies Record<string, (context: RoleContext) => void>;

export type Role = keyof typeof roles;

export const roleNames = Object.keys(roles) as Role[];

export function addRole(role: Role, context: RoleContext): void {
  roles[role](context);
}
