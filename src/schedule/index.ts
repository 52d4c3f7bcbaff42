export type { Leased } from './held-lease.ts';
export { withLease, type LeaseOptions, type LeaseResult, type SkipReason, type Wait } from './lease.ts';
export type { SqlClient } from './sql-client.ts';
export { parseCron, type Cron } from './cron.ts';
export { explainCron, type CronExplanation } from './cron-explanation.ts';
export { checkedCron, nextSlot, nextSlots } from './cron-slot.ts';
export { type Surprise } from './cron-surprise.ts';
export {
  backfillJob,
  backfillProgress,
  type Backfill,
  type BackfillOptions,
  type BackfillProgress,
} from './job-backfill.ts';
export { examineJobs } from './job-examination.ts';
export { jobHistory, runStates, type HistoryOptions, type JobRun } from './job-history.ts';
export { nextJobSlots, type NextSlot } from './job-next.ts';
export {
  cancelJob,
  endOfRun,
  pauseJob,
  resumeJob,
  retryOf,
  triggerJob,
  type Cancelled,
  type Retry,
  type Triggered,
} from './job-request.ts';
export { listJobs, showJob, troubledJobs, type JobDetails, type JobStatus, type TroubledJob } from './job-status.ts';
export { isSettled, previewJobs, syncJobs, type JobDiff } from './job-sync.ts';
export { Scheduler, type SchedulerOptions } from './scheduler.ts';
