import type { Cron } from './cron.ts';
import { isKept, nextWall } from './cron-slot.ts';
import { periodAt } from './cron-zone.ts';

/** How a clock change affects a schedule. */
export interface Surprise {
  /** When clocks change. */
  readonly at: Date;
  /** Whether local time is skipped or repeated. */
  readonly change: 'gap' | 'overlap';
  /** Local time just before and just after: 02:00 and 03:00. */
  readonly clock: readonly [before: string, after: string];
  /** Times of the schedule that are skipped or repeated. */
  readonly times: readonly string[];
  readonly effect: 'moved' | 'left_out' | 'first_only' | 'twice';
  readonly words: string;
}

const minute = 60_000;

/** Every clock change between two instants that affects the schedule. */
export function surprises(cron: Cron, zone: string, from: Date, until: Date): Surprise[] {
  const found: Surprise[] = [];
  for (let at = periodAt(zone, from.getTime()).end; at < until.getTime(); at = periodAt(zone, at).end) {
    const period = periodAt(zone, at);
    const { offset, before } = period;
    const times = wallTimes(cron, at + Math.min(offset, before), at + Math.max(offset, before));
    if (times.length === 0) continue;
    const change = offset > before ? 'gap' : 'overlap';
    const effect = effects[change][isKept(cron, period) ? 'kept' : 'plain'];
    const clock = [clockOf(at + before), clockOf(at + offset)] as const;
    const alone = change === 'overlap' || nextWall(cron, at + offset, at + offset + minute) === undefined;
    found.push({
      at: new Date(at),
      change,
      clock,
      times,
      effect,
      words: `Clocks go from ${clock[0]} to ${clock[1]}. ${sentences[effect](listed(times), clock[1], alone, times.length)}`,
    });
  }
  return found;
}

const effects = {
  gap: { kept: 'moved', plain: 'left_out' },
  overlap: { kept: 'first_only', plain: 'twice' },
} as const;

const sentences: Record<Surprise['effect'], (times: string, after: string, alone: boolean, count: number) => string> = {
  moved: (times, after, alone, count) =>
    `${times} ${count === 1 ? 'does' : 'do'} not exist; it runs once at ${after} instead${alone ? '' : ', which is one of its times anyway'}.`,
  left_out: (times, _after, _alone, count) =>
    `${times} ${count === 1 ? 'does' : 'do'} not exist and ${count === 1 ? 'is' : 'are'} left out.`,
  first_only: (times, _after, _alone, count) =>
    `${times} ${count === 1 ? 'comes' : 'come'} twice; it runs the first time only.`,
  twice: (times, _after, _alone, count) => `${times} ${count === 1 ? 'comes' : 'come'} twice, and it runs both times.`,
};

function wallTimes(cron: Cron, from: number, until: number): string[] {
  const times: string[] = [];
  for (let wall = nextWall(cron, from, until); wall !== undefined; wall = nextWall(cron, wall + minute, until))
    times.push(clockOf(wall));
  return times;
}

function clockOf(wall: number): string {
  return new Date(wall).toISOString().slice(11, 16);
}

function listed(times: readonly string[]): string {
  if (times.length <= 4) return times.join(', ');
  return `${times[0]}, ${times[1]}, … ${times.at(-1)} (${times.length} times)`;
}
