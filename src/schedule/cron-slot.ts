import { PgfreshError } from '../errors/index.ts';
import { parseCron, type Cron } from './cron.ts';
import { nextDay } from './cron-day.ts';
import { periodAt, type ZonePeriod } from './cron-zone.ts';

const minute = 60_000;
const hour = 60 * minute;
const day = 24 * hour;

/** Slots further away than this count as never. */
const years = 8;

/**
 * The first slot after an instant, always on a whole minute; null if there is none within eight years.
 * Independent of the process's time zone.
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

/** Up to a number of slots after an instant and before another. */
export function nextSlots(cron: Cron, zone: string, after: Date, count: number, until?: Date): Date[] {
  const slots: Date[] = [];
  const last = until?.getTime() ?? Infinity;
  let slot = nextSlot(cron, zone, after);
  while (slot && slot.getTime() < last && slots.push(slot) < count) slot = nextSlot(cron, zone, slot);
  return slots;
}

/** Checks the schedule of a job. Throws PGF_CRON_INVALID, PGF_ZONE_UNKNOWN or PGF_CRON_NEVER. */
export function checkedCron(expression: string, zone: string, now: Date): Cron {
  const cron = parseCron(expression);
  if (nextSlot(cron, zone, now) === null) throw new PgfreshError('PGF_CRON_NEVER', { expression, zone, years });
  return cron;
}

/**
 * Whether a skipped local time is made up for and a repeated one runs once. Intervals run through both.
 * So does everything else when a zone shifts by more than daylight saving time could.
 */
export function isKept(cron: Cron, { offset, before }: ZonePeriod): boolean {
  return cron.fixed && Math.abs(offset - before) <= 3 * hour;
}

/** The first matching local time in a range, written as if it were UTC. */
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
  // A repeated local time was used the first time, even when the search starts within the second.
  const wall = nextWall(cron, Math.max(from + offset, kept ? start + before : -Infinity), end + offset);
  return wall === undefined ? undefined : wall - offset;
}
