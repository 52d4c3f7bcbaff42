import { createHash } from 'node:crypto';
import type { Activity, DataState, Reason } from '../../planner/index.ts';
import type { PairState } from '../../changes/index.ts';
import type { Explained } from './pair-queries.ts';
import { failedSentence, reasonSentences, stateSentences } from '../sentences.ts';

/** A pair as clients see it. */
export interface Showing {
  /** Grows: plain comparison orders two of them. */
  readonly version: string;
  /** Equal rows have equal digests, on every gateway. */
  readonly digest: string;
  readonly rows: string;
  /** What to render. */
  readonly status: 'ready' | 'empty' | 'loading' | 'error';
  readonly state: DataState;
  readonly activity: Activity;
  readonly reason: Reason | null;
  readonly words: string;
  /** Rounded. */
  readonly until: Date | null;
  /** That its last refresh failed. */
  readonly error: typeof failedSentence | null;
  readonly fetchedAt: Date | null;
  readonly staleAt: Date | null;
  readonly sourceAt: Date | null;
}

const none = '[]';
/** Times until when something waits are rounded up to this. */
const roundedMs = 10_000;
/** A time that moves by less is not worth a message. */
const movedMs = 30_000;

/** Whether it is as its data type wants it, and nothing is to be done. It needs no explanation then. */
export function isPlainlyFresh(pair: PairState, sinceMs = 0): boolean {
  const { state, staleAt, activity, failing } = pair;
  const isWanted = (state === 'fresh' || state === 'empty') && staleAt !== null && !isPast(pair, sinceMs);
  return isWanted && activity === 'idle' && !failing;
}

/** What is known of a pair whose data type does not answer: it waits, and its data is as it was last seen. */
export const held: Explanation = { activity: 'waiting', reason: 'quarantined', until: null };

/** What explains a pair; without a state, its data is as it was read. */
export type Explanation = Omit<Explained, 'state'> & Partial<Pick<Explained, 'state'>>;

/** How a state is shown, with what explains it. One that is shown for the second time gets a later version. */
export function show(pair: PairState, turn: number, sinceMs: number, explained?: Explanation): Showing {
  const { version, rows, fetchedAt, staleAt, sourceAt, failing } = pair;
  const state = stateOf(pair, sinceMs, explained);
  const { activity, reason, until } = explained ?? { ...pair, until: null };
  return {
    version: `${version}.${String(turn).padStart(6, '0')}`,
    digest: digestOf(rows),
    rows,
    status: statusOf(rows, state, activity, failing),
    state,
    activity,
    reason,
    words: reason ? reasonSentences[reason] : stateSentences[activity === 'refreshing' ? activity : state],
    until: activity === 'waiting' ? rounded(until) : null,
    error: failing ? failedSentence : null,
    fetchedAt,
    // A staleness function may call it fresh for longer than its TTL; until when, it does not say.
    staleAt: state === 'fresh' && isPast(pair, sinceMs) ? null : staleAt,
    sourceAt,
  };
}

/** What is explained to its viewers. They are there, whether the planner has counted them yet or not. */
export function asViewed(explained: Explained): Explained {
  const isUncounted = explained.state === 'missing' && explained.activity === 'idle';
  return isUncounted ? { ...explained, activity: 'waiting', reason: 'due' } : explained;
}

// Rows and explanation are not of the same moment. The rows are shown, so they decide whether there are any.
function stateOf(pair: PairState, sinceMs: number, explained: Explanation | undefined): DataState {
  const isThere = pair.rows !== none;
  const said = explained?.state;
  if (said !== undefined && (said === 'empty' || (said !== 'missing') === isThere)) return said;
  if (!isPast(pair, sinceMs)) return pair.state;
  if (pair.state === 'fresh') return 'stale';
  return pair.state === 'empty' ? (isThere ? 'stale' : 'missing') : pair.state;
}

export function isPast({ staleAt, asOf }: Pick<PairState, 'staleAt' | 'asOf'>, sinceMs: number): boolean {
  return staleAt !== null && staleAt.getTime() <= asOf.getTime() + sinceMs;
}

function statusOf(rows: string, state: DataState, activity: Activity, failing: boolean): Showing['status'] {
  if (rows !== none) return 'ready';
  if (state === 'empty') return 'empty';
  if (failing) return 'error';
  // Row security shows no row, and none is on its way: there is none for this user.
  return activity === 'idle' ? 'empty' : 'loading';
}

function rounded(time: Date | null): Date | null {
  const ms = time?.getTime() ?? Number.NaN;
  return Number.isFinite(ms) ? new Date(Math.ceil(ms / roundedMs) * roundedMs) : null;
}

export function saysTheSame(one: Showing, other: Showing): boolean {
  const apart = (name: 'fetchedAt' | 'staleAt' | 'sourceAt' | 'until'): number =>
    Math.abs((one[name]?.getTime() ?? 0) - (other[name]?.getTime() ?? 0));
  return (
    one.digest === other.digest &&
    one.state === other.state &&
    one.activity === other.activity &&
    one.reason === other.reason &&
    one.error === other.error &&
    apart('fetchedAt') === 0 &&
    apart('staleAt') === 0 &&
    apart('sourceAt') === 0 &&
    apart('until') < movedMs
  );
}

function digestOf(rows: string): string {
  return createHash('sha256').update(rows).digest('base64url').slice(0, 16).replaceAll('-', '.');
}
