export type { Leased } from './held-lease.ts';
export { withLease, type LeaseOptions, type LeaseResult, type SkipReason, type Wait } from './lease.ts';
export type { SqlClient } from './sql-client.ts';
export { parseCron, type Cron } from './cron.ts';
export { checkedCron, nextSlot, nextSlots } from './cron-slot.ts';
export { surprises, type Surprise } from './cron-surprise.ts';
export { cronWords } from './cron-words.ts';
export { examineJobs } from './job-examination.ts';
export { isSettled, previewJobs, syncJobs, type JobDiff } from './job-sync.ts';
