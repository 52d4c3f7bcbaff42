import { parseCron } from './cron.ts';
import { nextSlots } from './cron-slot.ts';
import { surprises, type Surprise } from './cron-surprise.ts';
import { cronWords } from './cron-words.ts';

/** Everything that a person may want to know of an expression before trusting it. */
export interface CronExplanation {
  readonly expression: string;
  readonly zone: string;
  readonly words: string;
  /** Times of the day, or a rhythm. */
  readonly kind: 'fixed' | 'interval';
  readonly next: readonly Date[];
  readonly surprises: readonly Surprise[];
}

/** How far ahead surprises are looked for: every change of the clocks of the year to come, with room to plan. */
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
