import { z } from 'zod';

/** When to run: five fields, or a word such as @daily. */
export const cron = z
  .string()
  .regex(
    /^\s*(\S+(\s+\S+){4}|@(yearly|annually|monthly|weekly|daily|midnight|hourly))\s*$/i,
    'expected five fields such as "0 6 * * 1-5", or a word such as @daily',
  );

/** The name of a time zone. */
export const zone = z.string().refine(isZone, 'expected a time zone such as "UTC" or "America/New_York"');

/** Whether Node.js knows a time zone of this name. */
export function isZone(name: string): boolean {
  // Offsets are known too, but have no summer time and a sign that people read the other way round.
  if (!/^[A-Za-z]/.test(name)) return false;
  try {
    return new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone !== '';
  } catch {
    return false;
  }
}
