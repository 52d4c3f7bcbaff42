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

/** Names of the IANA database without a slash. Node.js knows others, such as PST, of which PostgreSQL and IANA have none. */
const plainZones = new Set(
  `CET CST6CDT Cuba EET EST EST5EDT Egypt Eire GB GB-Eire GMT GMT+0 GMT-0 GMT0 Greenwich HST Hongkong Iceland Iran Israel Jamaica
  Japan Kwajalein Libya MET MST MST7MDT NZ NZ-CHAT Navajo PRC PST8PDT Poland Portugal ROC ROK Singapore Turkey UCT UTC Universal W-SU
  WET Zulu`
    .toLowerCase()
    .split(/\s+/),
);

const notOfIana = /^(systemv\/.*|us\/pacific-new|canada\/east-saskatchewan)$/i;

/** Whether Node.js knows a time zone of this name of the IANA database. */
export function isZone(name: string): boolean {
  // Offsets are known too, but have no summer time and a sign that people read the other way round.
  if (!/^[A-Za-z][A-Za-z0-9_+/-]*$/.test(name) || notOfIana.test(name)) return false;
  if (!name.includes('/') && !plainZones.has(name.toLowerCase())) return false;
  try {
    return new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone !== '';
  } catch {
    return false;
  }
}
