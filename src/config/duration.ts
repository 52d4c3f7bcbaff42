import { z } from 'zod';

const units = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** A time as text, such as "250ms", "30s", "15m", "6h" or "1d"; or a number of milliseconds. */
export type Duration = number | `${number}${keyof typeof units}`;

const expected = 'expected a positive time such as "30s", "15m", "6h" or a number of milliseconds';

// The compiler refuses a literal of another form; what comes from the environment is read here.
const written = z.string() as z.ZodType as z.ZodType<string, Extract<Duration, string>>;

/** A positive time: a number of milliseconds, or a text such as "250ms", "30s", "15m", "6h", "1d". Read as milliseconds. */
export const duration = z.union([z.number(), written], expected).transform((value, context) => {
  const ms = typeof value === 'number' ? value : parseDuration(value);
  if (ms > 0 && Number.isFinite(ms)) return ms;
  context.addIssue({ code: 'custom', message: expected });
  return z.NEVER;
});

/** A time within bounds, which are named in its message. */
export function durationBetween(low: string, high: string) {
  const [least, most] = [parseDuration(low), parseDuration(high)];
  return duration.refine((ms) => ms >= least && ms <= most, `expected a time from ${low} to ${high}`);
}

/** Milliseconds as people write them, in the largest unit that divides them. */
export function durationText(ms: number): string {
  if (ms === 0) return '0s';
  const [unit, size] = Object.entries(units)
    .toReversed()
    .find(([, length]) => ms % length === 0) ?? ['ms', 1];
  return `${ms / size}${unit}`;
}

function parseDuration(text: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?$/.exec(text.trim());
  if (!match) return Number.NaN;
  return Number(match[1]) * units[(match[2] ?? 'ms') as keyof typeof units];
}
