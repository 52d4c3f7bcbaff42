import type { JsonRow } from './data-types.ts';
import type { StateMessage } from './protocol.ts';

/** Why something was refused, and what to do about it. */
export interface Refusal {
  /** Stable; docs/errors.md lists those of the server, and docs/client.md those of the client. */
  readonly code: string;
  readonly message: string;
  readonly next: string;
}

/** What is known of a pair now. It never changes; there is a new one when something is known. */
export interface Fresh<Row = JsonRow> {
  /** The first row; nothing if there is none, or none yet. */
  readonly data: Row | undefined;
  /** All rows, of a data type that has many for a key. */
  readonly rows: readonly Row[];
  /** `loading` until the server has said something, `refused` if it says no, else as the server says. */
  readonly state: 'loading' | 'fresh' | 'stale' | 'missing' | 'refreshing' | 'failing' | 'refused';
  /** Why it is in that state, as a word of docs/planner.md. */
  readonly reason: string | null;
  /** The same as a sentence. */
  readonly words: string;
  /** When the newest row was fetched. */
  readonly fetchedAt: Date | null;
  /** When it is too old. */
  readonly dueAt: Date | null;
  /** Grows; nothing before there is a state. */
  readonly version: string | null;
  readonly error: Refusal | null;
}

export const loading: Fresh = {
  data: undefined,
  rows: [],
  state: 'loading',
  reason: null,
  words: '',
  fetchedAt: null,
  dueAt: null,
  version: null,
  error: null,
};

/** A state as it was said. Rows that are left out are those from before. */
export function freshOf(said: StateMessage, before: Fresh): Fresh {
  const rows = said.rows ?? before.rows;
  return {
    data: rows[0],
    rows,
    state: said.state,
    reason: said.reason,
    words: said.words,
    fetchedAt: dateOf(said.fetched_at),
    dueAt: dateOf(said.due_at),
    version: said.version,
    error: null,
  };
}

/** The server says no. What somebody may not see any more is taken away; else what was there stays. */
export function refusedOf(refusal: Refusal, before: Fresh): Fresh {
  const kept = /FORBIDDEN|PRIVATE/.test(refusal.code) ? loading : before;
  return { ...kept, state: 'refused', reason: null, words: refusal.message, error: refusalOf(refusal) };
}

/** Only the refusal, of a message or an error that has more. */
export function refusalOf({ code, message, next }: Refusal): Refusal {
  return { code, message, next };
}

function dateOf(text: string | null): Date | null {
  return text === null ? null : new Date(text);
}
