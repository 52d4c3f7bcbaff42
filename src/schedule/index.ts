export { parseCron, type Cron } from './cron.ts';
export { checkedCron, nextSlot, nextSlots } from './cron-slot.ts';
export { surprises, type Surprise } from './cron-surprise.ts';
export { cronWords } from './cron-words.ts';
export { examineJobs } from './job-examination.ts';
export { isSettled, previewJobs, syncJobs, type JobDiff } from './job-sync.ts';
export { Scheduler, type SchedulerOptions } from './scheduler.ts';
