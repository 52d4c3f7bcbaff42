import type { Cron, CronDays } from './cron.ts';

const months = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];
const weekdays = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const ordinals = ['', 'first', 'second', 'third', 'fourth', 'fifth'];

/** Beyond this many times a day, describe the rule instead. */
const mostTimes = 6;

/** A cron expression in plain words, such as "at 02:30 on Monday to Friday in March". */
export function cronWords(cron: Cron): string {
  const parts = [timeWords(cron), dayWords(cron.days), monthWords(cron)];
  return parts.filter((part) => part !== '').join(' ');
}

/** 02:30. */
function clockText(hour: number, minute: number): string {
  return `${String(hour).padStart(2, '0')}:${String(minute).padStart(2, '0')}`;
}

function timeWords({ minutes, hours, fields: [minute, hour] }: Cron): string {
  if (hours.length * minutes.length <= mostTimes && !(hours.length === 1 && /[/-]/.test(minute)))
    return `at ${joined(hours.flatMap((h) => minutes.map((m) => clockText(h, m))))}`;
  const every = rhythm(minute, minutes, 60, 'minute');
  const at = every === '' ? `at ${plural('minute', minutes)} ${joined(stretches(minutes, String))}` : `every ${every}`;
  if (hours.length === 24) return every === '' ? `${at} of every hour` : at;
  const throughout = rhythm(hour, hours, 24, 'hour');
  if (throughout !== '') return `${at} of every ${throughout}`;
  return `${at} from ${joined(
    stretches(
      hours,
      (h) => clockText(h, 0),
      (h) => clockText(h, 59),
    ),
  )}`;
}

/** "15 minutes" for a list that divides the range evenly, with no remainder. */
function rhythm(field: string, values: readonly number[], round: number, unit: string): string {
  if (values.length === round) return unit;
  const step = round / values.length;
  const even = values[0] === 0 && /^[*?]\/\d+$/.test(field) && values.every((value, index) => value === index * step);
  if (!even || step === round) return '';
  return unit === 'hour' ? `${ordinal(step)} hour from 00:00` : `${step} ${unit}s`;
}

function ordinal(step: number): string {
  return ordinals[step] ?? `${step}th`;
}

function dayWords(days: CronDays): string {
  const byDay = [
    ...(days.days.length > 0 ? [`on ${plural('day', days.days)} ${joined(stretches(days.days, String))}`] : []),
    ...(days.lastDay ? ['on the last day'] : []),
  ];
  const byWeekday = [
    ...(days.weekdays.length > 0
      ? [`on ${joined(stretches(workWeek(days.weekdays), (day) => weekdays[day % 7]!))}`]
      : []),
    ...days.nths.map(({ weekday, nth }) => `on the ${nth === undefined ? 'last' : ordinals[nth]} ${weekdays[weekday]}`),
  ];
  const ofMonth = (parts: string[]) => `${joined(parts)} of the month`;
  const weekdayPart = days.nths.length > 0 ? ofMonth(byWeekday) : joined(byWeekday);
  if (days.by === 'all') return 'every day';
  if (days.by === 'day') return ofMonth(byDay);
  return days.by === 'weekday' ? weekdayPart : `${ofMonth(byDay)}, and also ${weekdayPart}`;
}

// Sunday ends the week where Saturday comes before it, so that 5,6,0 reads "Friday to Sunday".
function workWeek(values: readonly number[]): number[] {
  const sundayLast = values.includes(0) && values.includes(6) && values.length < 7;
  return sundayLast ? [...values.slice(1), 7] : [...values];
}

function monthWords({ months: values }: Cron): string {
  return values.length === 12 ? '' : `in ${joined(stretches(values, (month) => months[month - 1]!))}`;
}

/** Three or more in a row are one stretch: 1, 2, 3, 5 is "1 to 3" and "5". */
function stretches(
  values: readonly number[],
  first: (value: number) => string,
  last?: (value: number) => string,
): string[] {
  const found: [from: number, to: number][] = [];
  for (const value of values) {
    const open = found.at(-1);
    if (open && open[1] === value - 1) open[1] = value;
    else found.push([value, value]);
  }
  return found.flatMap(([from, to]) => {
    if (last) return [`${first(from)} to ${last(to)}`];
    if (to - from < 2) return from === to ? [first(from)] : [first(from), first(to)];
    return [`${first(from)} to ${first(to)}`];
  });
}

function plural(word: string, values: readonly number[]): string {
  return values.length === 1 ? word : `${word}s`;
}

function joined(parts: readonly string[]): string {
  return parts.length < 2 ? (parts[0] ?? '') : `${parts.slice(0, -1).join(', ')} and ${parts.at(-1)}`;
}
