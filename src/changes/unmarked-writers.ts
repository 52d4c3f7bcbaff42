import { hasEnded, parseSnapshot, unfinished } from './pg-snapshot.ts';

/** Of an answer of pump_changes: the types that are watched only just now, and since when. */
export interface Unsettled {
  readonly snapshot: string;
  readonly unsettled: readonly (readonly [type: number, since: string])[];
  /** The first transaction that cannot have missed that they are watched. */
  readonly next?: number;
}

/**
 * When somebody begins to watch a type, transactions may be under way that have written to it already, without a mark.
 * Nobody knows what, so the whole type counts as changed whenever one of those ends.
 */
export class Settling {
  /** By type and time, the transactions that have not ended. */
  readonly #waiting = new Map<string, number[]>();

  /** The types that count as changed now. */
  look({ snapshot: text, unsettled, next = 0 }: Unsettled): number[] {
    const snapshot = parseSnapshot(text);
    return unsettled.flatMap(([type, since]) => {
      const before = this.#waiting.get(nameOf(type, since));
      const now = before ? before.filter((xid) => !hasEnded(snapshot, xid)) : unfinished(snapshot, next);
      this.#waiting.set(nameOf(type, since), now);
      return before?.length === now.length ? [] : [type];
    });
  }

  /** Those of them for which nothing is waited for any more. */
  takeSettled({ unsettled }: Pick<Unsettled, 'unsettled'>): Unsettled['unsettled'] {
    const settled = unsettled.filter(([type, since]) => this.#waiting.get(nameOf(type, since))?.length === 0);
    for (const [type, since] of settled) this.#waiting.delete(nameOf(type, since));
    return settled;
  }
}

function nameOf(type: number, since: string): string {
  return `${type} ${since}`;
}
