import { nearMiss } from '../config/index.ts';

/** One of the five fields: its unit and range. */
export interface CronField {
  readonly name: string;
  readonly low: number;
  readonly high: number;
  readonly names: readonly string[];
}

const monthNames = ['JAN', 'FEB', 'MAR', 'APR', 'MAY', 'JUN', 'JUL', 'AUG', 'SEP', 'OCT', 'NOV', 'DEC'];
const weekdayNames = ['SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT'];

export const cronFields = {
  minute: { name: 'minute', low: 0, high: 59, names: [] },
  hour: { name: 'hour', low: 0, high: 23, names: [] },
  day: { name: 'day of month', low: 1, high: 31, names: [] },
  month: { name: 'month', low: 1, high: 12, names: monthNames },
  // Sunday is 0 and 7. Readers take values modulo 7.
  weekday: { name: 'day of week', low: 0, high: 7, names: weekdayNames },
} as const satisfies Record<string, CronField>;

/** Stops parsing with an error. */
export type Refuse = (problem: string) => never;

/** The values of one term of a field's list: `*`, `5`, `1-5`, `MON-FRI`, and each of them with a step. */
export function termValues(field: CronField, term: string, refuse: Refuse): number[] {
  const [range = '', step, ...more] = term.split('/');
  if (more.length > 0) refuse(`${field.name} "${term}": expected one step, such as */15`);
  const [from, to] = rangeOf(field, range, step !== undefined, refuse);
  const by = step === undefined ? 1 : stepOf(field, term, step, refuse);
  return Array.from({ length: Math.floor((to - from) / by) + 1 }, (_, index) => from + index * by);
}

/** Cron letters are A to Z only: toUpperCase would turn some other letters, such as the long s, into these. */
export function asciiUpper(text: string): string {
  return text.replaceAll(/[a-z]/g, (letter) => letter.toUpperCase());
}

/** The number that a word of the field stands for. */
export function valueOf(field: CronField, text: string, refuse: Refuse): number {
  const named = field.names.indexOf(asciiUpper(text));
  if (named >= 0) return named + field.low;
  const value = /^\d{1,4}$/.test(text) ? Number(text) : Number.NaN;
  if (value >= field.low && value <= field.high) return value;
  return refuse(`${field.name} "${text}": expected ${expected(field)}${hint(field, text)}`);
}

function rangeOf(field: CronField, range: string, stepped: boolean, refuse: Refuse): [from: number, to: number] {
  const last = field === cronFields.weekday ? 6 : field.high;
  if (range === '*' || range === '?') return [field.low, last];
  const [first = '', second, ...more] = range.split('-');
  if (more.length > 0) refuse(`${field.name} "${range}": expected one range, such as ${field.low}-${last}`);
  const from = valueOf(field, first, refuse);
  if (second === undefined) return [from, stepped ? Math.max(from, last) : from];
  const to = valueOf(field, second, refuse);
  if (from <= to) return [from, to];
  // Sunday has two numbers; a range takes the one that fits: FRI-SUN ends with 7, and 7-2 begins with 0.
  if (field === cronFields.weekday && to === 0) return [from, 7];
  if (field === cronFields.weekday && from === 7) return [0, to];
  return refuse(
    `${field.name} "${range}": expected a range that goes up; did you mean "${from}-${last},${field.low}-${to}"?`,
  );
}

function stepOf(field: CronField, term: string, step: string, refuse: Refuse): number {
  const size = field.high - field.low + (field === cronFields.weekday ? 0 : 1);
  const by = /^\d{1,4}$/.test(step) ? Number(step) : 0;
  return by >= 1 && by <= size
    ? by
    : refuse(`${field.name} "${term}": expected a step from 1 to ${size}, got "${step}"`);
}

function expected({ low, high, names }: CronField): string {
  return `${low} to ${high}${names.length > 0 ? ` or ${names[0]} to ${names.at(-1)}` : ''}, or *`;
}

function hint({ names }: CronField, text: string): string {
  const last = /^(.+)L$/i.exec(text)?.[1];
  if (last !== undefined && names === weekdayNames) {
    const named = names.indexOf(asciiUpper(last));
    const day = named >= 0 ? String(named) : last;
    if (/^[0-7]$/.test(day)) return `; did you mean "${day}#L", the last one of the month?`;
  }
  if (names.length === 0 || !/^[a-z]{2,}$/i.test(text)) return '';
  const near = names.find((name) => asciiUpper(text).startsWith(name)) ?? nearMiss(text, names);
  return near ? `; did you mean "${near}"?` : '';
}
