export { parseCron, type Cron } from './cron.ts';
export { explainCron, type CronExplanation } from './cron-explanation.ts';
export { checkedCron, nextSlot, nextSlots } from './cron-slot.ts';
export { type Surprise } from './cron-surprise.ts';
