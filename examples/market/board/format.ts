const money = new Map<string, Intl.NumberFormat>();

/** A price in its currency: 187.20 dollars, 2,345 yen. */
export function price(value: number, currency: string): string {
  let format = money.get(currency);
  if (!format) {
    format = new Intl.NumberFormat('en-US', { style: 'currency', currency, currencyDisplay: 'narrowSymbol' });
    money.set(currency, format);
  }
  return format.format(value);
}

const compactFormat = new Intl.NumberFormat('en-US', {
  notation: 'compact',
  minimumFractionDigits: 1,
  maximumFractionDigits: 1,
});
const wholeFormat = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 });
const twoDigits = new Intl.NumberFormat('en-US', { minimumFractionDigits: 2, maximumFractionDigits: 2 });

/** 1.2M, 34.5B. */
export const compact = (value: number): string => compactFormat.format(value);
export const whole = (value: number): string => wholeFormat.format(value);
export const decimal = (value: number): string => twoDigits.format(value);

/** A share of one, such as a margin: 0.1234 is 12.3 %. */
export const percent = (share: number, digits = 1): string => `${(share * 100).toFixed(digits)} %`;

/** A change with its sign, which must be seen: +0.42 %, −1.10 %. */
export function signed(value: number, text: (size: number) => string): string {
  return `${value < 0 ? '−' : '+'}${text(Math.abs(value))}`;
}

/** How long something is ago, in the unit a person would use. */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1_000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.floor(seconds / 3_600)} h` : `${Math.floor(seconds / 86_400)} d`;
}

/** The time until something, as a clock counts it down: 4:07. */
export function countdown(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1_000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
}

/** Decimal, as providers bill. */
export function bytes(count: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  const unit = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, count)) / 3));
  const value = count / 1_000 ** unit;
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function day(iso: string): string {
  return new Date(iso).toLocaleDateString('en-GB', {
    day: 'numeric',
    month: 'short',
    year: 'numeric',
    timeZone: 'UTC',
  });
}

export function clock(at: number): string {
  return new Date(at).toLocaleTimeString('en-GB');
}

/** A time that may be on another day: 14:30, or Mon 14:30. */
export function soon(iso: string, now: number): string {
  const at = new Date(iso);
  const time = at.toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit' });
  const isToday = at.toDateString() === new Date(now).toDateString();
  return isToday ? time : `${at.toLocaleDateString('en-GB', { weekday: 'short' })} ${time}`;
}
