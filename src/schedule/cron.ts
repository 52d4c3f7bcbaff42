import { nearMiss } from '../config/index.ts';
import { PgfreshError } from '../errors/index.ts';
import { asciiUpper, cronFields, termValues, valueOf, type Refuse } from './cron-field.ts';

/** A parsed cron expression. Lists are sorted, without duplicates. */
export interface Cron {
  readonly expression: string;
  /** As written, with a shorthand such as @daily expanded. */
  readonly fields: readonly [minute: string, hour: string, day: string, month: string, weekday: string];
  /** Names times of the day rather than an interval. The two behave differently when clocks change. */
  readonly fixed: boolean;
  readonly minutes: readonly number[];
  readonly hours: readonly number[];
  readonly months: readonly number[];
  readonly days: CronDays;
}

export interface CronDays {
  /** Which of the two day fields decide: `either` when both were given. */
  readonly by: 'all' | 'day' | 'weekday' | 'either';
  readonly days: readonly number[];
  readonly lastDay: boolean;
  /** 0 is Sunday. */
  readonly weekdays: readonly number[];
  /** The second Tuesday is { weekday: 2, nth: 2 }; the last one has no `nth`. */
  readonly nths: readonly { readonly weekday: number; readonly nth?: number }[];
}

const words: Readonly<Record<string, string>> = {
  '@YEARLY': '0 0 1 1 *',
  '@ANNUALLY': '0 0 1 1 *',
  '@MONTHLY': '0 0 1 * *',
  '@WEEKLY': '0 0 * * 0',
  '@DAILY': '0 0 * * *',
  '@MIDNIGHT': '0 0 * * *',
  '@HOURLY': '0 * * * *',
};

const longest = 500;

/** Parses five fields, or a shorthand such as @daily. Throws PGF_CRON_INVALID. */
export function parseCron(expression: string): Cron {
  const refuse: Refuse = (problem) => {
    const shown = JSON.stringify(expression.length > 80 ? `${expression.slice(0, 79)}…` : expression);
    throw new PgfreshError('PGF_CRON_INVALID', { expression: shown, problem });
  };
  if (expression.length > longest) refuse(`expected at most ${longest} characters, got ${expression.length}`);
  const fields = fieldsOf(expression.trim(), refuse);
  const [minute, hour, day, month, weekday] = fields;
  return {
    expression: expression.trim(),
    fields,
    fixed: !/[*?/-]/.test(minute + hour),
    minutes: listed(minute, (term) => termValues(cronFields.minute, term, refuse)),
    hours: listed(hour, (term) => termValues(cronFields.hour, term, refuse)),
    months: listed(month, (term) => termValues(cronFields.month, term, refuse)),
    days: daysOf(day, weekday, refuse),
  };
}

function fieldsOf(text: string, refuse: Refuse): Cron['fields'] {
  if (text.startsWith('@')) return (words[asciiUpper(text)] ?? refuse(wordProblem(text))).split(' ') as Fields;
  const fields = text === '' ? [] : text.split(/\s+/);
  if (fields.length === 5) return fields as Fields;
  const without =
    fields.length === 6 ? `; seconds and years are not kept: did you mean "${fields.slice(1).join(' ')}"?` : '';
  return refuse(`expected five fields, got ${fields.length}${without}`);
}

type Fields = [string, string, string, string, string];

function wordProblem(word: string): string {
  const known = Object.keys(words).map((one) => one.toLowerCase());
  const near = nearMiss(word, known);
  if (word.toLowerCase() === '@reboot') return 'a schedule has times, and @reboot has none';
  return `there is no word "${word}"; ${near ? `did you mean "${near}"?` : `expected one of ${known.join(', ')}`}`;
}

function daysOf(day: string, weekday: string, refuse: Refuse): CronDays {
  const byDay = !isAny(day);
  const byWeekday = !isAny(weekday);
  const isLast = (term: string) => asciiUpper(term) === 'L';
  const isNth = (term: string) => term.includes('#');
  const plain = (text: string, special: (term: string) => boolean, values: (term: string) => number[]) =>
    listed(text, (term) => (special(term) ? [] : values(term)));
  return {
    by: byDay && byWeekday ? 'either' : byDay ? 'day' : byWeekday ? 'weekday' : 'all',
    days: plain(day, isLast, (term) => termValues(cronFields.day, term, refuse)),
    lastDay: day.split(',').some(isLast),
    weekdays: plain(weekday, isNth, (term) => termValues(cronFields.weekday, term, refuse).map((value) => value % 7)),
    nths: weekday.split(',').flatMap((term) => (isNth(term) ? [nthOf(term, refuse)] : [])),
  };
}

function isAny(field: string): boolean {
  return field === '*' || field === '?';
}

function nthOf(term: string, refuse: Refuse): CronDays['nths'][number] {
  const [, day = '', nth = ''] = /^([^#]*)#([1-5Ll])$/.exec(term) ?? [];
  if (nth === '') refuse(`day of week "${term}": expected a day, # and 1 to 5 or L, such as MON#1`);
  const weekday = valueOf(cronFields.weekday, day, refuse) % 7;
  return nth.toUpperCase() === 'L' ? { weekday } : { weekday, nth: Number(nth) };
}

function listed(text: string, values: (term: string) => number[]): number[] {
  return [...new Set(text.split(',').flatMap(values))].toSorted((a, b) => a - b);
}
