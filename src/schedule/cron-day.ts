import type { Cron } from './cron.ts';

const day = 86_400_000;

/** The first matching day from one date up to, not including, another. Dates are midnights in UTC. */
export function nextDay(cron: Cron, date: number, until: number): number | undefined {
  while (date < until) {
    const at = new Date(date);
    if (!cron.months.includes(at.getUTCMonth() + 1)) date = Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1);
    else if (runsOn(cron, at)) return date;
    else date += day;
  }
  return undefined;
}

function runsOn({ days }: Cron, at: Date): boolean {
  if (days.by === 'all') return true;
  const isDay = days.by !== 'weekday' && (days.days.includes(at.getUTCDate()) || (days.lastDay && isLast(at, 1)));
  if (isDay || days.by === 'day') return isDay;
  const weekday = at.getUTCDay();
  const nth = Math.ceil(at.getUTCDate() / 7);
  return (
    days.weekdays.includes(weekday) ||
    days.nths.some((one) => one.weekday === weekday && (one.nth === undefined ? isLast(at, 7) : one.nth === nth))
  );
}

/** Whether the date that many days later is in another month. */
function isLast(at: Date, days: number): boolean {
  return new Date(at.getTime() + days * day).getUTCMonth() !== at.getUTCMonth();
}
