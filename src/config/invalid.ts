import type { z } from 'zod';
import { PgfreshError } from '../errors/index.ts';
import { nearMiss } from './near-miss.ts';

/** A value of the configuration that cannot be used: in which file, at which path, and why. */
export function invalid(file: string, path: string, problem: string, next?: string): PgfreshError {
  return new PgfreshError('PGF_CONFIG_INVALID', { file, problem: `${path}: ${problem}` }, { next });
}

/** What to say of a word that is none of the known ones. */
export function hintFor(word: string, known: readonly string[]): string {
  const near = nearMiss(word, known);
  return near ? `did you mean "${near}"?` : `expected one of ${known.join(', ')}`;
}

// A union reports only that nothing matched; the reason of its last branch is the one that people can use.
export function expectation(issue: z.core.$ZodIssue): string {
  const last =
    issue.code === 'invalid_union' && issue.message === 'Invalid input' ? issue.errors.at(-1)?.[0] : undefined;
  if (last) return expectation(last);
  return issue.message.charAt(0).toLowerCase() + issue.message.slice(1);
}

/** A value as a message shows it. */
export function shown(value: unknown): string {
  if (value === undefined) return 'nothing';
  const text = value instanceof RegExp ? String(value) : (JSON.stringify(value) ?? typeof value);
  return text.length <= 80 ? text : `${text.slice(0, 79)}…`;
}
