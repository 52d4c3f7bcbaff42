export type { Leased } from './held-lease.ts';
export { withLease, type LeaseOptions, type LeaseResult, type SkipReason, type Wait } from './lease.ts';
export type { SqlClient } from './sql-client.ts';
