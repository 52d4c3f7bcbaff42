import { createHash } from 'node:crypto';
import type { PairState } from './pair.ts';
import type { Explained } from './questions.ts';
import { reasonSentences, stateSentences } from './sentences.ts';

/** A pair as clients see it. */
export interface Showing {
  /** Grows: plain comparison orders two of them. */
  readonly version: string;
  /** Equal rows have equal digests, on every gateway. */
  readonly digest: string;
  readonly rows: string;
  readonly fetchedAt: Date | null;
  readonly dueAt: Date | null;
  readonly state: 'fresh' | 'stale' | 'missing' | 'refreshing' | 'failing';
  readonly reason: string | null;
  readonly words: string;
}

/** Whether it is as young as its data type wants it, and nothing is the matter. Nobody needs an explanation then. */
export function isPlainlyFresh({ rows, dueAt, asOf, activity, failing }: PairState, sinceMs = 0): boolean {
  const isDue = dueAt === null || dueAt.getTime() <= asOf.getTime() + sinceMs;
  return rows !== '[]' && activity === 'idle' && !failing && !isDue;
}

/** How a state is shown, with what explains it. One that is shown for the second time gets a later version. */
export function show(state: PairState, turn: number, explained: Explained | undefined): Showing {
  const { version, rows, fetchedAt, dueAt } = state;
  return {
    version: `${version}.${String(turn).padStart(6, '0')}`,
    digest: digestOf(rows),
    rows,
    fetchedAt,
    dueAt,
    state: conditionOf(state, explained),
    reason: explained?.reason ?? null,
    words: wordsOf(state, explained),
  };
}

/**
 * What is said of a pair that its viewer sees by row security. Not why: that may tell of rows which he does not see, and of
 * what is in them.
 */
export function privately(state: PairState, sinceMs: number): Explained {
  const condition = isPlainlyFresh(state, sinceMs) ? 'fresh' : state.rows === '[]' ? 'missing' : 'stale';
  return { state: condition, reason: null, queued: state.activity !== 'idle' };
}

export const plainlyFresh: Explained = { state: 'fresh', reason: null, queued: false };

function wordsOf(state: PairState, explained: Explained | undefined): string {
  const reason = explained?.reason ?? undefined;
  return reason === undefined ? stateSentences[conditionOf(state, explained)] : reasonSentences[reason];
}

function conditionOf({ rows, failing, activity }: PairState, explained: Explained | undefined): Showing['state'] {
  if (failing) return 'failing';
  if (explained?.queued ?? activity !== 'idle') return 'refreshing';
  if (rows === '[]') return 'missing';
  return explained?.state === 'fresh' ? 'fresh' : 'stale';
}

// Not the words: they tell how long something has been going on.
export function saysTheSame(one: Showing, other: Showing): boolean {
  const isSameTime = (name: 'fetchedAt' | 'dueAt'): boolean => one[name]?.getTime() === other[name]?.getTime();
  return (
    one.digest === other.digest &&
    one.state === other.state &&
    one.reason === other.reason &&
    isSameTime('fetchedAt') &&
    isSameTime('dueAt')
  );
}

function digestOf(rows: string): string {
  return createHash('sha256').update(rows).digest('base64url').slice(0, 16).replaceAll('-', '.');
}
