import { parseCron } from './cron.ts';
import { nextSlots } from './cron-slot.ts';
import { surprises, type Surprise } from './cron-surprise.ts';
import { cronWords } from './cron-words.ts';

/** What a person wants to know about an expression before trusting it. */
export interface CronExplanation {
  readonly expression: string;
  readonly zone: string;
  readonly words: string;
  /** Times of the day, or a rhythm. */
  readonly kind: 'fixed' | 'interval';
  readonly next: readonly Date[];
  readonly surprises: readonly Surprise[];
}

/** How far ahead to look for surprises: all clock changes of the coming year, with a margin. */
const surpriseDays = 400;

export function explainCron(expression: string, zone: string, from: Date, count: number): CronExplanation {
  const cron = parseCron(expression);
  const until = new Date(from.getTime() + surpriseDays * 86_400_000);
  return {
    expression: cron.expression,
    zone,
    words: cronWords(cron),
    kind: cron.fixed ? 'fixed' : 'interval',
    next: nextSlots(cron, zone, from, count),
    surprises: surprises(cron, zone, from, until),
  };
}
