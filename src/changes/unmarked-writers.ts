import { hasEnded, inProgressBelow, parseSnapshot } from './pg-snapshot.ts';

/** Part of an answer of pump_changes: the data types that were watched only recently. */
export interface UnsettledTypes {
  readonly snapshot: string;
  readonly unsettled: readonly (readonly [type: number, since: string])[];
  /** The first transaction that certainly saw that the types are watched. */
  readonly next?: number;
}

/**
 * Transactions that may have written to a data type without a mark, because the type was not watched when they did.
 * It is not known which rows they wrote, so the whole type counts as changed whenever one of them ends.
 */
export class UnmarkedWriters {
  /** Per type and time of the first watch, the transactions that are still running. */
  readonly #running = new Map<string, number[]>();

  /** The types that count as changed, because such a transaction has ended since the last call. */
  takeChanged({ snapshot: text, unsettled, next = 0 }: UnsettledTypes): number[] {
    const snapshot = parseSnapshot(text);
    return unsettled.flatMap(([type, since]) => {
      const before = this.#running.get(nameOf(type, since));
      const now = before ? before.filter((xid) => !hasEnded(snapshot, xid)) : inProgressBelow(snapshot, next);
      this.#running.set(nameOf(type, since), now);
      return before?.length === now.length ? [] : [type];
    });
  }

  /** The types for which no such transaction is running any more. Each is returned once. */
  takeSettled({ unsettled }: Pick<UnsettledTypes, 'unsettled'>): UnsettledTypes['unsettled'] {
    const settled = unsettled.filter(([type, since]) => this.#running.get(nameOf(type, since))?.length === 0);
    for (const [type, since] of settled) this.#running.delete(nameOf(type, since));
    return settled;
  }
}

function nameOf(type: number, since: string): string {
  return `${type} ${since}`;
}
