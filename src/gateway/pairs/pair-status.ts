import { createHash } from 'node:crypto';
import type { PairState } from '../../changes/index.ts';
import type { Activity, DataState, Reason } from '../../planner/index.ts';
import { failedSentence, reasonSentences, stateSentences } from '../sentences.ts';
import type { PairExplanation } from './pair-queries.ts';

/** A pair as clients see it. */
export interface PairStatus {
  /** Grows; plain text comparison orders two versions. */
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
  /** Set if the last refresh failed. */
  readonly error: typeof failedSentence | null;
  readonly fetchedAt: Date | null;
  readonly staleAt: Date | null;
  readonly sourceAt: Date | null;
}

/** An explanation that may lack a state; the state is then as it was read. */
export type PartialExplanation = Omit<PairExplanation, 'state'> & Partial<Pick<PairExplanation, 'state'>>;

const noRows = '[]';
/** `until` is rounded up to a multiple of this. */
const untilStepMs = 10_000;
/** An `until` that moves by less is not worth a message. */
const untilToleranceMs = 30_000;

/** The explanation of a pair whose data type does not answer: it waits, and its data is as last read. */
export const unresponsive: PartialExplanation = { activity: 'waiting', reason: 'quarantined', until: null };

/** Whether the pair is fresh and idle, so that there is nothing to explain. */
export function isFreshAndIdle(pair: PairState, sinceReadMs = 0): boolean {
  const { state, staleAt, activity, failing } = pair;
  const isFresh = (state === 'fresh' || state === 'empty') && staleAt !== null && !isStale(pair, sinceReadMs);
  return isFresh && activity === 'idle' && !failing;
}

/** Builds the status of a pair from its state and explanation. `revision` orders the statuses of one state. */
export function pairStatus(
  pair: PairState,
  revision: number,
  sinceReadMs: number,
  explanation?: PartialExplanation,
): PairStatus {
  const { version, rows, fetchedAt, staleAt, sourceAt, failing } = pair;
  const state = stateOf(pair, sinceReadMs, explanation);
  const { activity, reason, until } = explanation ?? { ...pair, until: null };
  return {
    version: `${version}.${String(revision).padStart(6, '0')}`,
    digest: digestOf(rows),
    rows,
    status: statusOf(rows, state, activity, failing),
    state,
    activity,
    reason,
    words: reason ? reasonSentences[reason] : stateSentences[activity === 'refreshing' ? activity : state],
    until: activity === 'waiting' ? roundUp(until) : null,
    error: failing ? failedSentence : null,
    fetchedAt,
    // A staleness function may call data fresh for longer than its TTL, and does not say until when.
    staleAt: state === 'fresh' && isStale(pair, sinceReadMs) ? null : staleAt,
    sourceAt,
  };
}

/** Corrects an explanation for a pair with viewers that the planner has not counted yet: it is due. */
export function asViewed(explanation: PairExplanation): PairExplanation {
  const isUncounted = explanation.state === 'missing' && explanation.activity === 'idle';
  return isUncounted ? { ...explanation, activity: 'waiting', reason: 'due' } : explanation;
}

// Rows and explanation were read at different moments. The rows decide whether there is data, as they are what is shown.
function stateOf(pair: PairState, sinceReadMs: number, explanation: PartialExplanation | undefined): DataState {
  const hasRows = pair.rows !== noRows;
  const explained = explanation?.state;
  if (explained !== undefined && (explained === 'empty' || (explained !== 'missing') === hasRows)) return explained;
  if (!isStale(pair, sinceReadMs)) return pair.state;
  if (pair.state === 'fresh') return 'stale';
  return pair.state === 'empty' ? (hasRows ? 'stale' : 'missing') : pair.state;
}

/** Whether the time at which the data goes stale has passed. */
export function isStale({ staleAt, asOf }: Pick<PairState, 'staleAt' | 'asOf'>, sinceReadMs: number): boolean {
  return staleAt !== null && staleAt.getTime() <= asOf.getTime() + sinceReadMs;
}

function statusOf(rows: string, state: DataState, activity: Activity, failing: boolean): PairStatus['status'] {
  if (rows !== noRows) return 'ready';
  if (state === 'empty') return 'empty';
  if (failing) return 'error';
  // Row security hides all rows and no refresh is on its way: this user has none.
  return activity === 'idle' ? 'empty' : 'loading';
}

function roundUp(time: Date | null): Date | null {
  const ms = time?.getTime() ?? Number.NaN;
  return Number.isFinite(ms) ? new Date(Math.ceil(ms / untilStepMs) * untilStepMs) : null;
}

/** Whether two statuses tell a viewer the same. */
export function isSameStatus(one: PairStatus, other: PairStatus): boolean {
  const difference = (name: 'fetchedAt' | 'staleAt' | 'sourceAt' | 'until'): number =>
    Math.abs((one[name]?.getTime() ?? 0) - (other[name]?.getTime() ?? 0));
  return (
    one.digest === other.digest &&
    one.state === other.state &&
    one.activity === other.activity &&
    one.reason === other.reason &&
    one.error === other.error &&
    difference('fetchedAt') === 0 &&
    difference('staleAt') === 0 &&
    difference('sourceAt') === 0 &&
    difference('until') < untilToleranceMs
  );
}

function digestOf(rows: string): string {
  return createHash('sha256').update(rows).digest('base64url').slice(0, 16).replaceAll('-', '.');
}
