import { z } from 'zod';

const flags = 'expected a pattern with no flag but i, because PostgreSQL reads it';

/** A regular expression as PostgreSQL reads it; one of JavaScript is taken over as far as both agree. */
export const patternText = z
  .union([z.string().min(1), z.instanceof(RegExp)], 'expected a pattern such as /^[A-Z]{1,5}$/')
  .transform((pattern, context) => {
    if (typeof pattern === 'string') return pattern;
    if (/^i?$/.test(pattern.flags)) return pattern.flags === 'i' ? `(?i)${pattern.source}` : pattern.source;
    context.addIssue({ code: 'custom', message: flags });
    return z.NEVER;
  });
