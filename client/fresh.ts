import type { JsonRow } from './data-types.ts';
import type { StateMessage, WaitingMessage } from './protocol.ts';

/** Why something was refused, and what to do about it. */
export interface Refusal {
  /** Stable; docs/reference/errors.md lists those of the server, and docs/guides/showing-data.md those of the client. */
  readonly code: string;
  readonly message: string;
  readonly next: string;
}

/** The state of the data; docs/reference/states.md says what each means. */
export type DataState = 'fresh' | 'stale' | 'missing' | 'empty' | 'older_source';

/** What happens with it. */
export type Activity = 'idle' | 'refreshing' | 'waiting';

/** What is known of a pair now. It never changes; there is a new one when something is known. */
export interface Fresh<Row = JsonRow> {
  /** The first row; nothing if there is none, or none yet. */
  readonly data: Row | undefined;
  /** All rows, of a data type that has many for a key. */
  readonly rows: readonly Row[];
  /** What to render: data, that there is none, that it is on its way, or why it is not. */
  readonly status: 'loading' | 'ready' | 'empty' | 'error';
  /** `loading` until the server has said something, `refused` if it says no, else the state of the data. */
  readonly state: 'loading' | 'refused' | DataState;
  /** Whether it is being refreshed, or waits for it. */
  readonly activity: Activity;
  /** Why it waits, as a word of docs/reference/states.md; null if it does not. */
  readonly reason: string | null;
  /** The same as a sentence. */
  readonly words: string;
  /** Until when it waits, about; null if that is not known. */
  readonly until: Date | null;
  /** When the newest row was fetched. */
  readonly fetchedAt: Date | null;
  /** When it goes stale. */
  readonly staleAt: Date | null;
  /** Of which time the data is at the source, if its data type tells. */
  readonly sourceAt: Date | null;
  /** Grows; nothing before there is a state. */
  readonly version: string | null;
  /** Why it is refused, or that its last refresh failed. */
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

/** A state as it was said. Rows that are left out are those from before, and so is all else while nothing is known. */
export function freshOf(said: StateMessage | WaitingMessage, before: Fresh): Fresh {
  const { type: _, pair: _pair, rows = before.rows, fetched_at, stale_at, source_at, ...rest } = said as StateMessage;
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

/** The server says no. What somebody may not see any more is taken away; else what was there stays. */
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

/** Only the refusal, of a message or an error that has more. */
export function refusalOf({ code, message, next }: Refusal): Refusal {
  return { code, message, next };
}

function dateOf(text: string | null): Date | null {
  return text ? new Date(text) : null;
}
