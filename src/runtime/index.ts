export { readRoles, roleNames, type Role } from './role-names.ts';
export { Runtime } from './runtime.ts';
export { start, type Pgfresh, type StartOptions } from './start.ts';
