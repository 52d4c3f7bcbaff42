export { parseCron, type Cron } from './cron.ts';
export { explainCron, type CronExplanation } from './cron-explanation.ts';
export { checkedCron, nextSlot, nextSlots } from './cron-slot.ts';
export { type Surprise } from './cron-surprise.ts';
export { examineJobs } from './job-examination.ts';
export { isSettled, previewJobs, syncJobs, type JobDiff } from './job-sync.ts';
export { Scheduler, type SchedulerOptions } from './scheduler.ts';
