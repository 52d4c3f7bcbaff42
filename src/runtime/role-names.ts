import { nearMiss } from '../config/index.ts';
import { PgfreshError } from '../errors/index.ts';

export const roleNames = ['planner', 'worker', 'scheduler', 'gateway', 'console'] as const;

export type Role = (typeof roleNames)[number];

/** The roles of these names, each once. */
export function readRoles(names: readonly string[]): Role[] {
  return [...new Set(names)].map((role) => {
    const known = roleNames.find((name) => name === role);
    if (known) return known;
    const near = nearMiss(role, roleNames);
    throw new PgfreshError('PGF_ROLE_UNKNOWN', {
      role,
      hint: near ? `; did you mean "${near}"?` : '.',
      roles: roleNames.join(', '),
    });
  });
}
