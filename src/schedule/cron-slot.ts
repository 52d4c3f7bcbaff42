import { PgfreshError } from '../errors/index.ts';
import { parseCron, type Cron } from './cron.ts';
import { nextDay } from './cron-day.ts';
import { periodAt, type ZonePeriod } from './cron-zone.ts';

const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;

/** What is further away is never. */
const years = 8;

/**
 * The first slot after an instant, always on a whole minute; null if there is none within eight years.
 * It depends on nothing else, least of all on the time zone of the process.
 */
export function nextSlot(cron: Cron, zone: string, after: Date): Date | null {
  const last = new Date(after).setUTCFullYear(after.getUTCFullYear() + years);
  let from = Math.floor(after.getTime() / minute) * minute + minute;
  while (from <= last) {
    const period = periodAt(zone, from);
    const slot = slotIn(cron, period, from);
    if (slot !== undefined) return slot <= last ? new Date(slot) : null;
    from = period.end;
  }
  return null;
}

/** As many slots after an instant as there are, up to a number, and before another instant. */
export function nextSlots(cron: Cron, zone: string, after: Date, count: number, until?: Date): Date[] {
  const slots: Date[] = [];
  const last = until?.getTime() ?? Infinity;
  let slot = nextSlot(cron, zone, after);
  while (slot && slot.getTime() < last && slots.push(slot) < count) slot = nextSlot(cron, zone, slot);
  return slots;
}

/** What a job may be registered with. Throws PGF_CRON_INVALID, PGF_ZONE_UNKNOWN or PGF_CRON_NEVER. */
export function checkedCron(expression: string, zone: string, now: Date): Cron {
  const cron = parseCron(expression);
  if (nextSlot(cron, zone, now) === null) throw new PgfreshError('PGF_CRON_NEVER', { expression, zone, years });
  return cron;
}

/**
 * Whether a time of the day that clocks leave out is made up for, and one that they show twice is taken once.
 * A rhythm goes on through both. So does everything when a zone moves by more than summer time could.
 */
export function isKept(cron: Cron, { offset, before }: ZonePeriod): boolean {
  return cron.fixed && Math.abs(offset - before) <= 3 * hour;
}

/** The first time on the clock that matches, from one up to another, as if it were UTC. */
export function nextWall(cron: Cron, from: number, until: number): number | undefined {
  let date = nextDay(cron, Math.floor(from / day) * day, until);
  for (; date !== undefined; date = nextDay(cron, date + day, until)) {
    for (const h of cron.hours) {
      if (date + h * hour + hour <= from) continue;
      for (const m of cron.minutes) {
        const wall = date + h * hour + m * minute;
        if (wall >= from) return wall < until ? wall : undefined;
      }
    }
  }
  return undefined;
}

function slotIn(cron: Cron, period: ZonePeriod, from: number): number | undefined {
  const { start, end, offset, before } = period;
  const kept = isKept(cron, period);
  const skipped = kept && from === start && nextWall(cron, start + before, start + offset) !== undefined;
  if (skipped) return start;
  // What clocks show again was taken the first time, also when the question comes from inside the second.
  const wall = nextWall(cron, Math.max(from + offset, kept ? start + before : -Infinity), end + offset);
  return wall === undefined ? undefined : wall - offset;
}
