export { parseCron, type Cron } from './cron.ts';
export { checkedCron, nextSlot, nextSlots } from './cron-slot.ts';
export { surprises, type Surprise } from './cron-surprise.ts';
export { cronWords } from './cron-words.ts';
export { Scheduler, type SchedulerOptions } from './scheduler.ts';
