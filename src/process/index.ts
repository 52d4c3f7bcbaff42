export { Lease } from './lease.ts';
export { Renewal, type LeaseAnswer, type LeaseStatements } from './renewal.ts';
