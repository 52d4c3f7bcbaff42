import type { JsonRow } from './data-types.ts';
import type { StateMessage, WaitingMessage } from './protocol.ts';

/** Why something was refused, and what to do about it. */
export interface Refusal {
  /** Stable. docs/reference/errors.md lists the codes of the server, docs/guides/showing-data.md those of the client. */
  readonly code: string;
  readonly message: string;
  readonly next: string;
}

/** The state of the data; docs/reference/states.md explains each value. */
export type DataState = 'fresh' | 'stale' | 'missing' | 'empty' | 'older_source';

/** Whether it is being refreshed. */
export type Activity = 'idle' | 'refreshing' | 'waiting';

/** The state of a pair. Immutable: every change makes a new object. */
export interface Fresh<Row = JsonRow> {
  /** The first row; undefined if there is none, or none yet. */
  readonly data: Row | undefined;
  /** All rows, for a data type with several rows per key. */
  readonly rows: readonly Row[];
  /** What to render: data, an empty state, a spinner or an error. */
  readonly status: 'loading' | 'ready' | 'empty' | 'error';
  /** `loading` until the server has answered, `refused` if it refused the pair, otherwise the state of the data. */
  readonly state: 'loading' | 'refused' | DataState;
  /** Whether it is being refreshed, or waits for a refresh. */
  readonly activity: Activity;
  /** Why it waits, as a code of docs/reference/states.md; null if it does not. */
  readonly reason: string | null;
  /** State and reason as a sentence. */
  readonly words: string;
  /** About when the wait ends; null if unknown. */
  readonly until: Date | null;
  /** When the newest row was fetched. */
  readonly fetchedAt: Date | null;
  /** When it goes stale. */
  readonly staleAt: Date | null;
  /** The time of the data at the source, if its data type reports one. */
  readonly sourceAt: Date | null;
  /** Grows with every state; null before the first one. */
  readonly version: string | null;
  /** Why the pair was refused, or that its last refresh failed. */
  readonly error: Refusal | null;
}

export const loading: Fresh = {
  data: undefined,
  rows: [],
  status: 'loading',
  state: 'loading',
  activity: 'idle',
  reason: null,
  words: '',
  until: null,
  fetchedAt: null,
  staleAt: null,
  sourceAt: null,
  version: null,
  error: null,
};

/** The state in a message. Rows that it leaves out are unchanged; a `waiting` message leaves out everything else. */
export function freshOf(message: StateMessage | WaitingMessage, before: Fresh): Fresh {
  const {
    type: _,
    pair: _pair,
    rows = before.rows,
    fetched_at,
    stale_at,
    source_at,
    ...rest
  } = message as StateMessage;
  if (!rest.version) return { ...before, ...(rest as Partial<Fresh>) };
  return {
    ...rest,
    data: rows[0],
    rows,
    until: dateOf(rest.until),
    fetchedAt: dateOf(fetched_at),
    staleAt: dateOf(stale_at),
    sourceAt: dateOf(source_at),
  };
}

/** The state of a refused pair. Data that the user may no longer see is removed; otherwise it stays. */
export function refusedOf(refusal: Refusal, before: Fresh): Fresh {
  const kept = /FORBIDDEN|PRIVATE|ROLE/.test(refusal.code) ? loading : before;
  return {
    ...kept,
    status: kept.data ? 'ready' : 'error',
    state: 'refused',
    activity: 'idle',
    reason: null,
    words: refusal.message,
    until: null,
    error: refusalOf(refusal),
  };
}

/** Only the refusal, from a message or error with more properties. */
export function refusalOf({ code, message, next }: Refusal): Refusal {
  return { code, message, next };
}

function dateOf(text: string | null): Date | null {
  return text ? new Date(text) : null;
}
