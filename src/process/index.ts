export { Lease } from './lease.ts';
export { Renewal, type LeaseAnswer, type Registration } from './renewal.ts';
